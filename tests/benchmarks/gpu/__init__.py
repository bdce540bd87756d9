"""The GPU check: everything that this project wants to know of a GPU, by one command (check.sh), line by line.

`goals` says what is asked for and what was found, `parts` what measures it and in how much time. The modules that
`parts` lists have a `main(seconds)`, which measures and writes results/gpu/<part>.json; without CUDA it does the same
in little and writes results/gpu_in_little/<part>.json. `carry.sh` brings vLLM to a machine without a network.
"""
