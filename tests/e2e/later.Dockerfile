# An image of a version that no longer serves members of this one, made of that of the next version.
ARG PYTHON
FROM ${PYTHON}
USER 0
RUN cd /opt/scar/lib/python3.11/site-packages/scar && rm -f __pycache__/version.* \
    && sed -i 's/^__version__ = .*/__version__ = "100.0.0"/; s/^OLDEST_PROTOCOL = .*/OLDEST_PROTOCOL = 99/' version.py \
    && python -c 'import scar.version as v; assert (v.__version__, v.PROTOCOL, v.OLDEST_PROTOCOL) == ("100.0.0", 99, 99)'
USER 10001:10001
