"""Settings that all tests share."""

import jax

# Laws about sharding need several devices; this must be said before any backend is first used.
jax.config.update("jax_num_cpu_devices", 4)
