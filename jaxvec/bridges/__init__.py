"""Bridges to other libraries; each page imports its library when a function of it is called.

sb3         Stable-Baselines3 and lit_sb3: registration, statistics in their files
callback    any VecEnv inside compiled programs
"""
