"""The paper's figures and tables, made again: one module each, on the cores of the services, in one process.

scar experiment fig7 --trials 100 --out build/experiments
"""
