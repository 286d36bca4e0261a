# Two images: `owner` serves one owner's records, `learner` trains. See docs/deployment.md.
#
# Any image with Python 3.11 or later can be the base; the build's image needs the same Python with
# its venv module. Wheels that lie in deploy/images/wheels are used instead of a package index.
ARG BASE_IMAGE=python:3.12-slim
ARG BUILD_IMAGE=python:3.12

FROM ${BUILD_IMAGE} AS tools
WORKDIR /build
RUN python3 -m venv /opt/copriv
COPY constraints.txt ./
COPY deploy/images deploy/images

FROM tools AS build-owner
RUN deploy/images/install.sh needs owner
COPY pyproject.toml README.md LICENSE ./
COPY common common
COPY owner owner
RUN deploy/images/install.sh rooms owner

FROM tools AS build-learner
RUN deploy/images/install.sh needs owner learner
COPY pyproject.toml README.md LICENSE ./
COPY common common
COPY owner owner
COPY learner learner
RUN deploy/images/install.sh rooms owner learner

FROM ${BASE_IMAGE} AS run
RUN printf 'copriv:x:10001:10001::/nonexistent:/usr/sbin/nologin\n' >> /etc/passwd \
 && printf 'copriv:x:10001:\n' >> /etc/group \
 && mkdir -p /ledger /runs /certs /config \
 && chown 10001:10001 /ledger /runs /certs
ENV PATH=/opt/copriv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    OPENBLAS_NUM_THREADS=1
WORKDIR /config
USER 10001:10001

FROM run AS learner
COPY --from=build-learner /opt/copriv /opt/copriv
ENV MPLCONFIGDIR=/tmp
RUN ["/opt/copriv/bin/python", "-c", "import learner.commands.study, learner.results.plots"]
ENTRYPOINT ["copriv"]

FROM run AS owner
COPY --from=build-owner /opt/copriv /opt/copriv
RUN ["/opt/copriv/bin/python", "-c", "import owner.server, owner.audit, owner.home_commands, owner.site_commands"]
ENTRYPOINT ["copriv-owner"]
