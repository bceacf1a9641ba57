# `make` prints what it can do. GNU make 3.81 or newer, on Linux and macOS.

TOOLS := .cache/tools

# The linter is built from its pinned version in tools/go.mod, by the Go that
# will read our code: its file carries both, so a change of either builds anew.
LINT_VERSION := $(shell sed -n 's|.*golangci/golangci-lint/v2 \(v[^ ]*\).*|\1|p' tools/go.mod)
VALE_VERSION := v3.21.0
VALE := $(TOOLS)/vale-$(VALE_VERSION)-$(firstword $(shell go env GOVERSION))
LINT := $(TOOLS)/golangci-lint-$(LINT_VERSION)-$(firstword $(shell go env GOVERSION))

.DEFAULT_GOAL := help
.PHONY: deps help build run test test-times check check-all lint prose soak large conformance polyglot under-load break vulncheck release rename-module drill schedules limits upgrade-test bench bench-scale fmt clean

help: ## print this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

deps: ## install what the tests need beside Go (Debian or Ubuntu, as root)
	scripts/prepare --race

build: ## put tasker and tasker-ctl (also as tasker-cli) into bin/
	@mkdir -p bin
	CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/tasker ./cmd/tasker-ctl
	ln -sf tasker-ctl bin/tasker-cli

run: ## run a server with a database and a demo of its own
	go run ./cmd/tasker dev --demo

test: ## run every test that can run here
	scripts/test

TIMES ?=
test-times: ## run all tests, one package after the other, and print what each costs (TIMES='-race ./internal/engine': some)
	scripts/test-times $(TIMES)

check: ## run what CI runs: format, lint, generated files, tests
	.ci/run

check-all: check ## run what CI runs, and all tests under the race detector (an hour)
	TASKER_TEST_REQUIRE_ALL=true scripts/test -race -vet=off -shuffle=on ./...

lint: $(LINT) ## run the linters of .golangci.yml
	$(LINT) run ./...
	cd bench && $(CURDIR)/$(LINT) run --config $(CURDIR)/.golangci.yml ./...
	cd tools && $(CURDIR)/$(LINT) run --config $(CURDIR)/.golangci.yml ./...

prose: $(VALE) ## list sentences of docs and Go comments that are long or do not read as plain English
	$(VALE) --config tools/prose/.vale.ini --output line $(if $(PROSE),$(PROSE),README.md ARCHITECTURE.md CONTRIBUTING.md docs $(shell git ls-files '*.go' | grep -v _test.go))

soak: ## try millions of random decisions and stories against the rules, and a long outage (an hour)
	go test ./internal/core -run 'RandomTasks|Simulated' -v -timeout 60m -args -tasks=750000 -seeds=100000 | grep -vE '^=== '
	go test ./internal/dlq -run TheRulesHold -timeout 30m -args -sequences=10000
	go test ./internal/cases -run AgreeWithAModel -timeout 60m -args -acts=100000
	go test ./internal/operation -run TestAServerMayDie -timeout 30m -args -every-crash
	go test ./internal/engine -run 'Agrees?WithAModel' -v -timeout 0 -args -acts=100000
	go test ./internal/engine -run BigTasks -timeout 30m -args -large-steps=1000
	go test ./internal/e2e -run ContinuesWithoutTheBroker -timeout 30m -args -away=60s

large: SHELL := bash
large: .SHELLFLAGS := -o pipefail -c
large: ## try what is large at full size, and what stands between worker and server badly for a minute each (10 minutes)
	go test ./internal/engine -count 1 -v -timeout 20m -run '^(TestLargeInputs.*|TestFailuresOfOneReport.*|TestContextThatExpands.*)$$' -args -parents=270 | grep -E '_test.go:|^(---|ok|FAIL)'
	go test ./internal/api -count 1 -v -run '^TestMemoryOfManyLargeBodies$$' | grep -E '_test.go:|^(---|ok|FAIL)'
	go test ./internal/templatefile -count 1 -run '^TestComparisonsAreCheap$$'
	go test ./internal/web -count 1 -v -run '^TestALongQueueIsALightPage$$' -args -queue=10000 | grep -E '_test.go:|^(---|ok|FAIL)'
	go test ./internal/schema -count 1 -v -run '^TestTheCostOfASnapshotIsLinear$$' | grep -E '_test.go:|^(---|ok|FAIL)'
	go test ./worker -count 1 -timeout 30m -run '^(TestAProxy.*|TestADatabaseThatIsReadOnly.*)$$' -args -bad-for=60s

SDK ?=
conformance: ## run the conformance suite for the program SDK (the Go SDK by default), then against a real server
	dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && \
		go build -o "$$dir/" ./cmd/tasker ./sdk/conformance ./sdk/conformance/worker && \
		"$$dir/conformance" --parallel 8 -- $(or $(SDK),"$$dir/worker") && \
		"$$dir/conformance" --real --tasker "$$dir/tasker" -- $(or $(SDK),"$$dir/worker")

TASKS ?= 1000
FAULTS ?= 100
SEED ?= $(shell date +%s)
polyglot: ## run TASKS with steps in Go, Python and TypeScript, and kill or freeze workers FAULTS times (a minute)
	scripts/polyglot --tasks $(TASKS) --kills $(FAULTS) --seed $(SEED)

under-load: ## run all tests five times beside four busy loops for each core (hours)
	scripts/under-load

BREAK ?= .
break: ## break each requirement of docs/internals/specification.md (or those that match BREAK) and see a test fail (hours)
	go test ./internal/architecture -count 1 -v -timeout 10h -run '^TestRequirementsThatAreBrokenFailATest$$' -args -break='$(BREAK)' | grep -vE '^=== '

VULNCHECK ?= required
vulncheck: ## look for known vulnerabilities in all modules (GOVULNDB=file://… without the internet; VULNCHECK=report only reports)
	cd tools && go build -o ../$(TOOLS)/vulncheck ./vulncheck && ../$(TOOLS)/vulncheck $(if $(filter report,$(VULNCHECK)),-report)

VERSION ?=
OUT ?= $(CURDIR)/artifacts/proxy
PROGRAMS ?= $(CURDIR)/artifacts/release
PLATFORMS ?= darwin/amd64 darwin/arm64 linux/amd64 linux/arm64
release: vulncheck ## write VERSION=v… of the last commit: a module proxy (OUT), programs with SBOMs and checksums (PROGRAMS)
	cd tools && go run ./release -version "$(VERSION)" -out "$(abspath $(OUT))" -programs "$(abspath $(PROGRAMS))" -platforms "$(PLATFORMS)"

rename-module: ## give the module another path: MODULE=example.com/team/tasker
	scripts/rename-module "$(MODULE)"

drill: ## take both event buses away for five minutes, kill the server meanwhile, and report (9 minutes)
	go test ./internal/e2e -run '^TestAnOutageOfBothBusesLosesNothing$$' -count 1 -v -timeout 30m -args -drill=5m

SCHEDULES ?= 1000
KILLS ?= 200
schedules: ## have SCHEDULES fire every five seconds for a minute, and then kill all servers at KILLS instants (40 minutes)
	go test ./internal/e2e -run '^TestSchedulesSurviveKilledServers$$' -count 1 -v -timeout 2h -args -schedules=$(SCHEDULES) -kills=$(KILLS) -between=5s -calm=1m

CLAIMS ?= 1000000
SERVERS ?= 8
WORKER_KILLS ?= 300
SERVER_KILLS ?= 30
limits: ## have CLAIMS steps with a limit of 10 claimed on SERVERS servers, and kill workers and servers meanwhile (hours)
	go test ./internal/e2e -run '^TestLimitHoldsWhileProcessesAreKilled$$' -count 1 -v -timeout 0 -args -limit-claims=$(CLAIMS) -limit-servers=$(SERVERS) -worker-kills=$(WORKER_KILLS) -server-kills=$(SERVER_KILLS)

PREVIOUS ?= HEAD

upgrade-test: ## migrate under load beside the previous version's servers and workers, built from git (PREVIOUS=revision)
	rm -rf .cache/previous
	mkdir -p .cache/previous/source
	git archive $(PREVIOUS) | tar -x -C .cache/previous/source
	cd .cache/previous/source && go build -buildvcs=false -trimpath -o .. ./cmd/tasker && go test -c -trimpath -o ../e2e.test ./internal/e2e
	go test ./internal/e2e -run '^TestUpgradeBesideThePreviousVersion$$' -count 1 -v -timeout 10m -args -previous=$(CURDIR)/.cache/previous
	rm -rf .cache/previous

bench: ## measure the engine against plain PostgreSQL
	cd bench && go run .

bench-scale: ## measure how costs grow: big tasks, payloads, backlogs, fleets, a million tasks, history (half an hour)
	cd bench && go run . growth
	cd bench && go run . scale
	cd bench && go run . scale --sizes 10000 --history 10

fmt: ## format all Go code
	gofmt -w .

clean: ## remove what make made
	rm -rf bin .cache

$(LINT):
	@mkdir -p $(TOOLS)
	@rm -f $(TOOLS)/golangci-lint-*
	@echo 'building golangci-lint $(LINT_VERSION), once; this takes a minute or two'
	cd tools && go build -trimpath -o ../$@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

$(VALE):
	@mkdir -p $(TOOLS)
	@echo 'building vale, once; this takes a minute or two and needs a C compiler'
	GOBIN=$(CURDIR)/$(TOOLS) go install -trimpath github.com/vale-cli/vale/v3/cmd/vale@$(VALE_VERSION)
	@mv $(TOOLS)/vale $@
