# An image of the next version, made of one of this version: it says a higher protocol number, and still serves this one.
ARG PYTHON
FROM ${PYTHON}
USER 0
RUN cd /opt/scar/lib/python3.11/site-packages/scar && rm -f __pycache__/version.* \
    && sed -i 's/^__version__ = .*/__version__ = "99.0.0"/; s/^PROTOCOL = .*/PROTOCOL = 99/' version.py \
    && python -c 'from scar.version import *; import scar.version as v; assert (v.__version__, v.PROTOCOL) == ("99.0.0", 99)'
USER 10001:10001
