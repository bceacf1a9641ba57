# The server and the command line, in an image without anything else.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags=-s -o /out/ ./cmd/tasker ./cmd/tasker-ctl && ln -s tasker-ctl /out/tasker-cli

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/ /usr/local/bin/
USER 65532
ENTRYPOINT ["/usr/local/bin/tasker"]
