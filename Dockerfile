# The server and the command line, in an image without anything else. The build context has no git repository, so
# pass what the programs print as their version:
#
#   docker build --build-arg VERSION=v0.1.0 --build-arg COMMIT="$(git rev-parse HEAD)" --build-arg DATE="$(git log -1 --format=%cI)" .
FROM golang:1.26 AS build
ARG VERSION COMMIT DATE
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags="-s -X tasker.example/tasker/internal/cli.version=$VERSION -X tasker.example/tasker/internal/cli.commit=$COMMIT -X tasker.example/tasker/internal/cli.date=$DATE" -o /out/ ./cmd/tasker ./cmd/tasker-ctl && ln -s tasker-ctl /out/tasker-cli

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/ /usr/local/bin/
USER 65532
ENTRYPOINT ["/usr/local/bin/tasker"]
