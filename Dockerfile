# The image holds one static binary and the public certificate authorities. It
# runs as an ordinary user; mount a volume at /var/lib/svc for `svc up`, or run
# `svc apiserver` with an external etcd.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION TARGETOS TARGETARCH
RUN GOFLAGS=-trimpath GOOS=$TARGETOS GOARCH=$TARGETARCH hack/build.sh /out/svc "$VERSION" && mkdir -p /out/data

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/svc /svc
COPY --from=build --chown=65532:65532 /out/data /var/lib/svc
USER 65532:65532
EXPOSE 6443
VOLUME /var/lib/svc
ENTRYPOINT ["/svc"]
CMD ["up", "--data-dir=/var/lib/svc", "--bind-address=0.0.0.0"]
