"""Bridges to other libraries; each page imports its library when a function of it is called.

sb3         Stable-Baselines3 and lit_sb3: registration, statistics in their files
gymnasium   gymnasium's VectorEnv, EnvPool and ale-py's AtariVectorEnv, both ways
callback    any VecEnv inside compiled programs
"""
