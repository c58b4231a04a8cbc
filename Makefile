# `make` alone prints this list.

GO      ?= go
TOOLS    = $(GO) tool -modfile=.ci/tools.mod
UNITS    = $$($(GO) list ./... | grep -v -e /pipeline/e2e)
FUZZTIME ?= 3s
SCENARIOS ?= forward small-batches tls fan-out idle stuck latency slow mixed allocations source-impact mm2

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## the three programs, into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/ ./cmd/...

.PHONY: demo
demo: ## the main job on two embedded clusters, checked byte by byte, in half a minute
	$(GO) run ./cmd/kferry-demo

.PHONY: test
test: ## everything: units under -race, bounded fuzzing, real Kafka
	$(GO) test -race -shuffle=on $(UNITS)
	@$(GO) test -count=1 -v -run '^TestRealKafkaRuns$$' ./pipeline/kafkatest | grep 'NOT RUN' || true
	$(MAKE) --no-print-directory fuzz
	$(MAKE) --no-print-directory e2e

.PHONY: e2e
e2e: ## the tests on real Apache Kafka (needs a JDK 17 or later and Maven)
	$(GO) test -count=1 -timeout 20m ./pipeline/e2e

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME
	@for package in $$($(GO) list ./...); do \
	  for target in $$(grep -hoE '^func Fuzz[A-Za-z0-9]+' $$($(GO) list -f '{{range .TestGoFiles}}{{$$.Dir}}/{{.}} {{end}}{{range .XTestGoFiles}}{{$$.Dir}}/{{.}} {{end}}' $$package) /dev/null | sed 's/^func //'); do \
	    echo "fuzz $$package $$target"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 5s $$package || exit 1; \
	  done; \
	done

.PHONY: lint
lint: ## gofmt, vet, staticcheck, the direction of imports
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$unformatted" ] || { echo "gofmt would change: $$unformatted"; exit 1; }
	$(GO) vet ./...
	$(TOOLS) staticcheck ./...
	$(GO) mod tidy -diff
	$(GO) test -count=1 -run 'TestImports' ./pipeline

.PHONY: fmt
fmt: ## format the code
	gofmt -w $$(git ls-files '*.go')

.PHONY: bench
bench: ## the figures of BENCHMARKS.md (an idle machine, about 45 minutes; real Kafka for the last)
	@missed=0; for scenario in $(SCENARIOS); do $(GO) run ./cmd/kferry-bench run $$scenario || missed=1; done; exit $$missed

.PHONY: micro
micro: ## the micro-benchmarks of the packages
	$(GO) test -run '^$$' -bench . -benchtime 200ms $(UNITS)

.PHONY: bench-diff
bench-diff: ## the micro-benchmarks of two commits in turns, BASE=main; fails where allocations rise
	@GO="$(GO)" .ci/bench-diff "$(BASE)"

.PHONY: clean
clean: ## remove what build made
	rm -rf bin
