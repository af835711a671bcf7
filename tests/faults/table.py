"""Which tests hold each kind of fault that users of such libraries have met.

A kind has an id, its law in a few words, and the tests that hold the law, wherever they live; those of this
folder hold it on every backend. `python -m tests.faults` prints the table.
"""

from typing import NamedTuple


class Fault(NamedTuple):
    """One kind."""

    law: str
    tests: tuple[str, ...]  # node ids


_TABLE = """
A1.1 a terminal observation survives an environment that uses its array again
  faults/test_resets an_array_that_is_used_again_does_not_overwrite_the_terminal_observation
  faults/test_resets an_array_that_is_used_again_survives_steps_of_single_rows
  vec/test_dummy_equals_sb3 terminal_observation_survives_an_environment_that_reuses_its_array
A1.2 an environment's own info is neither written to nor seen to change
  faults/test_resets an_info_that_is_used_again_is_neither_written_to_nor_seen_to_change
  faults/test_resets monitors_write_nothing_into_an_info_that_is_used_again
  vec/test_dummy_equals_sb3 the_environments_own_info_is_never_written_and_never_aliased
  vec/test_wrappers_small no_wrapper_writes_into_the_infos_from_below
A1.3 what was handed out stays as it was when steps follow
  faults/test_resets what_was_handed_out_stays_as_it_was
  faults/test_numbers a_learner_may_write_into_all_that_it_is_handed
  vec/test_jax_vec_env what_was_handed_out_stays_when_steps_follow
A1.5 an episode of n steps shows n + 1 observations
  faults/test_resets an_episode_of_n_steps_shows_n_plus_1_observations
  envs/test_autoreset an_episode_of_n_steps_shows_n_plus_1_observations
  envs/test_adapter_gymnax a_row_steps_as_gymnax_stepped_by_hand_and_keeps_its_last_observation
A1.6 a terminal observation is what the layer makes of the raw one
  faults/test_resets a_terminal_observation_is_what_the_layer_makes_of_the_raw_one
  faults/test_resets a_compiled_terminal_observation_is_what_the_layers_make_of_the_raw_one
  core/test_laws sparse_and_dense_final_rows_agree
  vec/test_faults_sb3_misses a_terminal_observation_is_normalized_as_any_other
A1.7 a terminal stack of channels-first images holds its own episode
  faults/test_images a_stack_multiplies_the_axis_of_the_channels_and_moves_whole_frames
  core/test_frame_stack a_terminal_stack_of_channels_first_images_holds_its_own_episode
  vec/test_wrappers_small a_terminal_stack_holds_the_ended_episode_and_the_new_one_begins_with_zeros
A1.8 a stack moves by whole frames, all channels together
  faults/test_images a_stack_multiplies_the_axis_of_the_channels_and_moves_whole_frames
  core/test_frame_stack all_channels_of_a_frame_move_together
A1.9 only the stack of the row that ended is cleared
  core/test_frame_stack only_the_row_that_ended_is_cleared
  vec/test_wrappers_small only_the_row_that_ended_is_cleared
  vec/test_faults_sb3_misses a_stack_that_is_reset_shows_no_older_frame
A1.11 statistics are those of real steps in every autoreset mode
  envs/test_autoreset returns_and_lengths_of_three_steps_are_three_in_every_mode
  envs/test_autoreset statistics_count_every_observation_and_every_real_step_once
  core/test_normalize returns_and_counts_hold_real_steps_only_in_every_autoreset_mode
  bridges/test_gymnasium a_vector_environment_in_any_mode_is_the_vec_env_of_the_same_environments
A1.13 seeds and options wait for the next reset that is asked for (SB3's way; `sticky` is the other)
  faults/test_resets seeds_and_options_wait_for_the_next_reset_that_is_asked_for
  faults/test_resets options_wait_for_the_next_reset_that_is_asked_for_in_compiled_environments_too
  vec/test_dummy_equals_sb3 sticky_options_reach_automatic_resets_too
  vec/test_workers_equal_dummy sticky_options_reach_automatic_resets_in_workers
A1.14 every environment has options of its own
  faults/test_resets an_environment_that_empties_its_options_takes_them_from_no_other
  vec/test_dummy_equals_sb3 every_environment_has_options_of_its_own
A1.16 a reset returns observations alone
  faults/test_resets a_reset_returns_observations_alone_and_its_infos_are_seen_through_every_layer
A1.17 the infos of resets are seen through every layer
  faults/test_resets a_reset_returns_observations_alone_and_its_infos_are_seen_through_every_layer
  vec/test_wrapper reset_infos_are_those_of_the_venv_inside
A2.1 what terminates was not cut off, even if both flags are up
  faults/test_truncation what_terminates_was_not_cut_off_even_if_both_flags_are_up
  faults/test_truncation what_terminates_was_not_cut_off_in_a_compiled_environment_either
  faults/test_truncation a_rollout_shows_one_flag_at_most
  envs/test_autoreset what_terminates_at_the_limit_is_not_truncated
A2.2 an adapter's time limit truncates
  envs/test_autoreset the_time_limit_truncates_what_has_not_terminated
  envs/test_adapter_gymnax its_time_limit_is_vectorizes_and_can_be_lifted
  envs/test_adapter_brax each_episode_starts_from_a_state_of_its_own_and_the_limit_truncates
  envs/test_adapter_playground a_row_steps_as_playground_stepped_by_hand_and_the_limit_truncates
A2.4 every info of every step says whether the episode was cut off
  faults/test_truncation every_info_of_every_step_says_whether_it_was_cut_off
A2.5 flags of any kind arrive as bool
  faults/test_truncation flags_of_any_kind_arrive_as_bool
  faults/test_truncation dones_that_are_numbers_are_no_indices
  envs/test_vectorize flags_leave_as_bool_whatever_they_came_as
A3.1 an exception keeps its type and names environment and traceback
  vec/test_faults an_exception_keeps_its_type_and_names_environment_and_traceback
  faults/test_processes an_exception_arrives_as_itself_through_every_layer
A3.2 close returns in time after a fault
  vec/test_faults close_returns_within_its_timeout_and_says_whom_it_killed
  vec/test_faults a_dead_worker_is_noticed_within_a_second
A3.3 a dead process is named with its exit code
  vec/test_faults a_dead_worker_is_noticed_within_a_second
A3.5 what cannot be pickled is a TypeError of that call alone
  vec/test_faults an_attribute_that_cannot_be_pickled_is_a_type_error_of_that_call_alone
  vec/test_faults an_info_that_cannot_be_pickled_is_a_type_error_that_names_the_environment
A3.6 an exception in a constructor arrives and nothing is left
  vec/test_faults an_exception_in_a_constructor_arrives_and_nothing_is_left
A3.8 a wrong number of actions steps nobody
  faults/test_processes a_wrong_number_of_actions_steps_nobody
  vec/test_faults misuse_is_refused_before_anything_is_sent
A3.9 a second step is refused and the first one arrives
  faults/test_processes a_second_step_is_refused_and_the_first_one_arrives
A3.10 a reset finishes the pending step and forgets it
  faults/test_processes a_reset_finishes_the_step_that_is_pending_and_forgets_it
A3.11 an attribute that one environment lacks leaves no answer behind
  faults/test_processes an_attribute_that_the_first_environment_lacks_leaves_no_answer_behind
A3.14 closing reaches every environment
  faults/test_processes closing_reaches_every_environment_through_every_layer
  vec/test_faults an_exception_in_close_is_told_and_every_other_environment_is_closed
A3.15 no process outlives its caller
  vec/test_processes_end no_worker_outlives_a_caller_that_is_killed
  vec/test_faults a_venv_that_is_dropped_leaves_nothing
A3.16 an interrupt is raised once, in the caller
  vec/test_processes_end an_interrupt_raises_once_in_the_caller_and_nowhere_else
A3.17 a script without a guard is told so
  vec/test_processes_end a_script_without_a_guard_is_told_so
A3.18 nothing is forked unless one asks for it
  faults/test_processes without_a_word_about_it_processes_are_not_forked
A3.19 what is closed is closed twice without a word and steps no more
  faults/test_processes what_is_closed_is_closed_twice_without_a_word_and_steps_no_more
  faults/test_processes a_log_that_is_closed_says_so_when_an_episode_ends
  vec/test_wrappers_video closing_ends_the_video_and_can_be_repeated
A3.23 after a fault every call says that the VecEnv is closed
  vec/test_faults an_exception_keeps_its_type_and_names_environment_and_traceback
  vec/test_jax_face what_is_closed_says_so_whatever_is_asked_of_it
A3.24 spaces that differ are refused by index (DummyVecEnv keeps SB3's: the first one's hold)
  faults/test_processes spaces_that_differ_are_refused_in_processes_and_those_of_the_first_hold_in_one
  vec/test_faults different_spaces_are_refused_with_the_index_of_the_one_that_differs
A3.25 own generators draw alike everywhere; the global one is warned of where one looks
  faults/test_processes environments_that_draw_from_their_own_generator_are_alike_on_every_backend
A4.1 one dtype of observations and rewards on every backend
  faults/test_numbers wide_numbers_arrive_in_the_dtype_of_the_space_and_rewards_as_float32
  envs/test_vectorize observations_leave_in_the_dtype_of_their_space
A4.2 a value that would wrap is refused
  faults/test_numbers what_would_wrap_broadcast_or_scramble_is_refused_by_every_backend
  spaces/test_values a_number_that_would_change_is_refused_by_its_value
A4.3 a shape that would be broadcast or scrambled is refused
  faults/test_numbers what_would_wrap_broadcast_or_scramble_is_refused_by_every_backend
  spaces/test_values what_does_not_fit_is_refused_and_nothing_is_written
  envs/test_vectorize_refusals what_does_not_fit_is_refused_by_the_name_of_the_leaf_before_anything_runs
A4.4 a scalar fills no row of shared memory
  spaces/test_values what_does_not_fit_is_refused_and_nothing_is_written
  faults/test_numbers what_would_wrap_broadcast_or_scramble_is_refused_by_every_backend
A4.5 a reward of one number in any wrapping is one number
  faults/test_numbers a_reward_of_one_number_in_any_wrapping_is_one_number
  faults/test_numbers a_reward_of_two_numbers_is_refused
  faults/test_jax a_reward_of_any_kind_leaves_as_one_float32_and_can_be_scanned
A4.7 a return loses none of many small rewards
  core/test_episode a_million_small_rewards_are_not_lost_on_the_device
  core/test_episode returns_still_grow_by_1_beyond_2_to_the_24
  vec/test_wrappers_monitor 200000_rewards_of_a_tenth_are_not_lost_in_float32
A4.8 a count grows for ever
  core/test_moments a_count_of_2_to_the_24_grows_by_one
  core/test_moments a_count_of_1e13_still_grows_by_one_and_the_variance_is_finite
A4.9 a variance far from zero is right
  faults/test_normalization numbers_far_from_zero_are_normalized_by_their_own_spread
  core/test_moments batches_of_any_size_stay_right
A4.10 low precision is summed in higher
  core/test_moments float16_batches_are_not_summed_in_float16
  core/test_moments bytes_are_cast_before_they_are_subtracted
A4.11 the prior's weight is SB3's, to the last bit
  core/test_moments the_first_batch_is_biased_by_the_prior_as_in_sb3
  core/test_moments a_constant_stream_has_the_variance_that_is_left_of_the_prior
A4.12 NaN and infinity are found before they spoil statistics, or left out
  faults/test_numbers bad_numbers_are_found_before_they_spoil_statistics_for_ever
  core/test_non_finite rows_that_are_skipped_leave_no_trace_in_the_statistics
A4.13 normalized is float32, undone is float64, the rest is as it was
  faults/test_numbers what_is_normalized_is_float32_and_what_is_undone_is_float64
A4.14 a stack of normalized bytes is not cut off to bytes
  vec/test_wrappers_normalize a_stack_of_normalized_bytes_is_not_cut_off_to_bytes
  core/test_frame_stack a_normalized_vector_of_bytes_is_stacked_as_floats
A4.15 every number has a mean of its own
  core/test_normalize every_number_has_a_mean_of_its_own_whatever_the_number_of_environments
A4.16 the space says what a layer hands out
  core/test_laws the_spec_holds_what_is_produced
A4.17 no value changes on its way into JAX
  envs/test_vectorize_refusals whole_numbers_that_32_bits_would_cut_off_are_refused_with_their_value
  core/test_observation TestCastObservation::test_64_bits_are_refused_where_jax_would_make_32_of_them
  test_random all_64_bits_of_a_seed_count
  vec/test_jax_vec_env wrong_actions_are_refused_before_anything_is_stepped
A4.20 a learner may write into all that it is handed
  faults/test_numbers a_learner_may_write_into_all_that_it_is_handed
  vec/test_jax_vec_env what_it_hands_out_may_be_written_into
A5.1 wrapping leaves the spaces inside as they were
  faults/test_normalization wrapping_leaves_the_spaces_inside_as_they_were
  vec/test_wrappers_normalize the_space_inside_stays_as_it_was
A5.2 without norm_obs any observation will do
  faults/test_normalization without_norm_obs_any_observation_will_do
  faults/test_normalization without_norm_obs_any_compiled_observation_will_do
A5.3 original observations are reached through layers outside
  vec/test_wrappers_normalize original_values_are_reached_through_wrappers_outside
  vec/test_jax_sb3_checks off_policy_learners_find_the_normalization
A5.4 a reset counts its observations
  faults/test_normalization a_reset_counts_and_evaluation_leaves_all_as_it_was
  core/test_normalize a_reset_counts_observations_but_no_returns
A5.5 evaluation leaves all statistics as they are
  faults/test_normalization a_reset_counts_and_evaluation_leaves_all_as_it_was
  vec/test_wrappers_normalize training_off_leaves_all_statistics_as_they_are
A5.6 a second normalization warns
  vec/test_wrappers_normalize a_second_normalization_warns_unless_it_normalizes_something_else
  vec/test_wrappers_normalize warnings_of_a_load_name_the_double_normalization
A5.7 rewards are scaled by the spread of discounted returns, their mean stays (SB3's way)
  core/test_normalize the_first_two_rewards_are_scaled_as_worked_out_by_hand
  vec/test_wrappers_normalize the_first_rewards_give_the_numbers_of_sb3s_docs
A5.8 a return is counted and then cleared where its episode ends
  faults/test_normalization returns_are_counted_and_then_cleared_where_an_episode_ends
  core/test_normalize the_return_is_counted_and_then_cleared_where_an_episode_ends
A5.11 statistics of something else or of another shape are refused
  vec/test_wrappers_normalize statistics_of_another_shape_are_refused
  vec/test_wrappers_normalize files_of_something_else_are_refused_by_name
  faults/test_files statistics_that_were_cut_off_anywhere_are_refused
  faults/test_files a_pickle_of_sb3s_class_that_holds_nonsense_is_refused
A5.12 no pickle is run unless it is trusted, and there is a format without any
  faults/test_files a_pickle_bomb_does_nothing_but_be_refused
  vec/test_wrappers_normalize a_pickle_with_anything_else_in_it_is_refused_unless_trusted
  vec/test_wrappers_normalize sb3s_own_class_loads_what_is_saved_and_the_other_way_round
A5.13 stacks that do not correspond are not synchronized
  vec/test_wrappers_normalize stacks_that_do_not_correspond_are_not_synchronized
A5.15 statistics have the shape of one observation
  faults/test_normalization statistics_have_the_shape_of_one_observation_whatever_n_is
  core/test_moments the_shape_of_moments_is_that_of_one_sample
A5.16 statistics are over all rows of all devices
  core/test_moments two_devices_with_equal_rows_each_have_the_variance_between_them
  envs/test_sharded_rollout statistics_are_over_all_rows_of_all_devices
A6.1 a keyword of the info is told and logged, one that is lacking is named
  faults/test_monitoring a_keyword_of_the_info_is_told_and_logged_and_one_that_is_lacking_is_named
A6.3 each environment has a log of its own
  faults/test_monitoring each_environment_has_a_log_of_its_own
  vec/test_wrappers_make each_rank_has_a_monitor_file
  faults/test_files rows_that_are_appended_run_together_with_no_row_that_was_cut_off
A6.4 logs are SB3's byte by byte
  vec/test_wrappers_monitor the_file_of_a_monitor_is_sb3s_byte_by_byte
  vec/test_wrappers_monitor the_file_of_a_vec_monitor_is_sb3s_byte_by_byte
A6.5 logs without episodes give an empty table, and no logs an error
  faults/test_files a_log_of_no_episodes_has_its_columns_and_no_rows
  faults/test_files a_log_that_is_none_is_refused_by_name
A6.7 one environment that is monitored already is enough to warn
  faults/test_monitoring one_environment_that_is_monitored_already_is_enough_to_warn
  vec/test_wrappers_monitor a_monitored_environment_warns
A6.8 a Monitor refuses steps and resets out of order
  vec/test_wrappers_monitor a_monitor_refuses_steps_and_resets_out_of_order
A6.9 an evaluation takes as many episodes of slow environments as of fast ones
  faults/test_monitoring an_evaluation_takes_as_many_episodes_of_slow_environments_as_of_fast_ones
  envs/test_rollout when_disabled_a_rollout_is_the_first_episode_of_every_row
A6.10 a VecEnv that knows of no wrappers can be monitored
  faults/test_monitoring a_vec_env_that_knows_of_no_wrappers_can_be_monitored
  bridges/test_gymnasium jaxvecs_wrappers_stand_on_a_vector_environment
A6.11 true returns are told below a normalization, scaled ones above
  faults/test_monitoring true_returns_are_told_below_a_normalization_and_scaled_ones_above
  vec/test_jax_fused a_monitor_writes_the_episodes_of_the_raw_rewards
A6.12 an infinite reward stays in its own episode
  faults/test_monitoring an_infinite_reward_stays_in_its_own_episode
  core/test_episode an_infinite_reward_stays_in_its_own_episode
A6.13 only finished episodes are told, and nothing where there are none
  faults/test_monitoring without_an_ended_episode_nothing_is_told
  faults/test_jax finished_episodes_alone_are_averaged
  cli/test_rollout_command a_run_without_an_ended_episode_says_so
A7.1 a seed waits for the next reset and serves once
  faults/test_seeding a_seed_waits_for_the_next_reset_and_serves_once
A7.2 environments differ, seeded or not
  faults/test_seeding a_seed_decides_all_episodes_and_its_rows_differ
  faults/test_seeding without_a_seed_environments_differ
A7.3 spawned seeds share nothing with a neighbouring run's (SB3's sequential ones do)
  faults/test_seeding spawned_seeds_share_nothing_with_those_of_the_neighbouring_run
A7.5 two builds of one seed draw the same actions
  faults/test_seeding two_builds_of_one_seed_draw_the_same_actions
A7.6 a seed decides all episodes
  faults/test_seeding a_seed_decides_all_episodes_and_its_rows_differ
A7.7 an attribute is set on the outermost wrapper (SB3's way) or where one says
  faults/test_seeding an_attribute_is_set_on_the_outermost_wrapper_or_where_one_says
A7.8 environments are named by any integer and by slices
  faults/test_seeding environments_are_named_by_any_integer_and_by_slices
  vec/test_dummy_equals_sb3 indices_are_integers_slices_and_masks
A7.9 an ambiguous attribute is refused with both classes
  vec/test_wrapper the_message_of_an_ambiguous_lookup_names_both_classes
A7.10 the same instance twice is refused
  vec/test_dummy_equals_sb3 the_same_instance_twice_is_refused
A7.11 what an environment is made with is bound by partial, not by a lambda
  faults/test_seeding what_each_environment_is_made_with_is_bound_by_partial
A7.12 every space can be batched, written, read and iterated over
  spaces/test_properties shared_memory_gives_the_elements_back
  spaces/test_properties iterating_over_what_was_concatenated_gives_the_elements
  spaces/test_batch empty_containers_stand_in_every_row
  spaces/test_batch a_multidiscrete_that_leaves_its_dtype_is_refused_by_name
  spaces/test_batch an_empty_array_of_a_discrete_space_holds_its_first_element
  spaces/test_batch concatenating_gives_what_gymnasiums_gives
  spaces/test_shared a_text_that_nobody_wrote_is_empty
  spaces/test_shared a_text_outside_the_space_is_refused
  spaces/test_shared elements_of_a_choice_are_copies
A7.13 observations of no fixed size come as objects, nested spaces are refused with what to do
  faults/test_seeding observations_of_no_fixed_size_come_as_objects
  faults/test_seeding nested_spaces_are_refused_with_what_to_do
A7.14 a missing key is refused by name, one too much is dropped with a warning
  faults/test_seeding a_missing_key_is_refused_by_name
  faults/test_seeding a_key_too_much_is_dropped_with_a_warning
A7.15 discrete actions have no axis but that of the rows
  faults/test_seeding discrete_actions_with_an_axis_too_many_are_refused_by_compiled_environments
  envs/test_vectorize_refusals actions_of_another_shape_than_the_spaces_are_refused
A8.1 an image with its channels first is not transposed again
  faults/test_images an_image_with_its_channels_first_is_not_transposed_again
A8.2 an image whose middle axis is smallest warns and counts as channels-last
  faults/test_images an_image_whose_middle_axis_is_smallest_warns_and_is_stacked_last
A8.3 a stack multiplies the axis of the channels and adds none
  faults/test_images a_stack_multiplies_the_axis_of_the_channels_and_moves_whole_frames
  faults/test_images frames_with_an_axis_in_front_are_no_images_and_are_said_to_be_none
A8.5 a recorder holds no frame
  faults/test_images a_recorder_holds_no_frame
A8.6 a video is whole though nobody closes the recorder
  vec/test_wrappers_video a_file_is_whole_when_nobody_closes_the_recorder
A8.7 a video may show one environment alone
  vec/test_wrappers_video a_video_of_one_environment_renders_no_other
A8.8 pictures are tiled, and a mode that does not fit warns
  faults/test_images three_pictures_are_tiled_into_a_square_with_a_black_cell
A9.1 every episode begins from a draw of its own
  faults/test_jax every_episode_of_every_row_begins_from_a_draw_of_its_own
  envs/test_resets every_episode_starts_from_a_fresh_draw_of_its_own
A9.2 nothing of an episode is left in the next one
  faults/test_jax nothing_of_an_episode_is_left_in_the_next_one
  envs/test_resets the_whole_state_is_replaced_so_that_a_clock_in_a_nested_info_starts_anew
A9.4 a reward of any kind leaves as one float32 and can be scanned
  faults/test_jax a_reward_of_any_kind_leaves_as_one_float32_and_can_be_scanned
  faults/test_jax a_reward_of_two_numbers_is_refused_before_anything_runs
A9.5 a step is traced once over resets and steps
  faults/test_jax a_step_is_traced_once_over_resets_and_steps
A9.6 rows, resets and steps never share a draw
  faults/test_jax rows_resets_and_steps_never_share_a_draw
A9.7 keys of either style are taken, and saved
  faults/test_jax keys_of_either_style_are_taken
  test_io a_key_of_a_custom_implementation_comes_back_as_that_implementation
A9.8 a repeated action pays nothing after the end
  faults/test_jax a_repeated_action_pays_nothing_after_the_end
A9.9 the step that ends an episode says so, though it shows the next one
  envs/test_autoreset every_column_is_as_written_by_hand
  envs/test_adapter_jumanji a_row_steps_as_jumanji_stepped_by_hand_and_a_limit_is_a_truncation
A9.10 resets of many rows are chosen at once, not row by row
  faults/test_jax resets_of_many_rows_are_chosen_at_once_and_not_row_by_row
A9.11 automatic resets can be done without
  faults/test_jax automatic_resets_can_be_done_without
A9.12 a branch on a traced flag is refused with the environment's own error
  faults/test_jax a_branch_on_a_traced_flag_is_refused_with_the_environments_own_error
A9.15 infos of reset and step are one tree
  faults/test_jax infos_of_reset_and_step_are_one_tree
A9.16 a FuncEnv's functions are called in its order
  envs/test_func_env a_step_is_what_the_functions_themselves_give_from_equal_states
  envs/test_func_env all_rows_move_while_one_starts_anew
"""


def _read(table: str) -> dict[str, Fault]:
    faults: dict[str, Fault] = {}
    for line in table.strip().splitlines():
        if not line.startswith(" "):
            id, law = line.split(" ", 1)
            assert id not in faults, f"{id} is there twice"
            faults[id] = Fault(law, ())
        else:
            file, name = line.split()
            node = f"tests/{file}.py::{name if '::' in name else f'test_{name}'}"
            faults[id] = faults[id]._replace(tests=(*faults[id].tests, node))
    return faults


FAULTS = _read(_TABLE)
"""By id, in order."""
