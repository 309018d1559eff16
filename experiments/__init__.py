"""The figures and tables of the paper, made again: one module each, on the cores of the services, without processes.

scar experiment fig7 --trials 100 --out build/experiments
"""
