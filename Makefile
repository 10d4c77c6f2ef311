# Everything the project does is a target here: `make help` lists them.
# Nothing needs to be installed beforehand but Go, make and git; tools are
# pinned in modules under hack/tools and built into bin/ when first needed.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO ?= go
BIN := $(CURDIR)/bin
# svc's own version: that of the tag, if there is one on this commit.
VERSION ?= $(patsubst v%,%,$(shell git describe --tags --exact-match 2>/dev/null))

# Binaries are static. Only the race detector needs a C compiler (test-unit).
export CGO_ENABLED := 0

##@ Use

.PHONY: up
up: build ## Start a cluster on this machine; as root on Linux, with a node (flags: make up ARGS='--data-dir DIR').
	@hack/node-setup.sh
	@exec $(BIN)/svc up $(ARGS)

.PHONY: build
build: ## Build bin/svc and bin/svclet.
	hack/build.sh $(BIN)/svc $(VERSION)
	hack/build.sh $(BIN)/svclet $(VERSION)

.PHONY: image
image: ## Build the container image, dist/svc.tar, without a container engine (IMAGE=name:tag PLATFORMS=linux/amd64).
	@hack/image.sh $(VERSION)

.PHONY: push
push: image ## Build the container image and send it to a registry (IMAGE=registry/name:tag).
	@[[ -n "$(IMAGE)" ]] || { echo "make push: say where to: IMAGE=registry/name:tag" >&2; exit 1; }
	$(BIN)/image -push $(IMAGE) -output dist

# What is deployed: config/aggregated, config/standalone, or a directory of your own.
CONFIG ?= config/aggregated

.PHONY: manifests
manifests: build ## Render CONFIG to dist/svc.yaml; with IMAGE=name:tag, with that image.
	@BIN=$(BIN) hack/manifests.sh $(CONFIG) dist/svc.yaml

.PHONY: deploy
deploy: kubeconfig manifests ## Install CONFIG into the cluster of KUBECONFIG.
	@BIN=$(BIN) hack/deploy.sh dist/svc.yaml

.PHONY: undeploy
undeploy: kubeconfig manifests ## Remove CONFIG from the cluster of KUBECONFIG, with all data.
	@BIN=$(BIN) hack/undeploy.sh dist/svc.yaml

# Without it, svc kubectl would use the svc up of this user.
.PHONY: kubeconfig
kubeconfig:
	@: "$${KUBECONFIG:?export KUBECONFIG=FILE: that of the host}"

##@ Check

.PHONY: test
test: ## Run every test, as CI does, and say at the end what has failed.
	@MAKE='$(MAKE)' hack/report.sh test-unit test-fuzz test-suites test-fleet test-node

# Each package is compiled once, for the binaries, the linters and the tests alike: with
# -trimpath, wherever the checkout is, and with the build tag of hack/build.sh. The linters
# include vet, so go test runs without it. Kubernetes' own programs (bench, test-peers)
# are built without the tag, as they are published.
export GOFLAGS := $(sort $(shell $(GO) env GOFLAGS) -trimpath)
test-unit test-fuzz test-suites test-e2e test-faults test-fleet test-node test-aggregated test-soak: export GOFLAGS += -vet=off -tags=fieldsv1string,grpcnotrace

.PHONY: test-unit
test-unit: ## Run the unit tests; what runs goroutines, with the race detector where a C compiler is present.
	@hack/test-unit.sh

.PHONY: test-fuzz
test-fuzz: ## Run each fuzz target for 2 seconds (FUZZTIME=10m: that long, guided by coverage).
	@hack/fuzz.sh

# The longest come first, so that no processor is idle at the end. Those of fleets and nodes
# run alone: the former starts hundreds of threads, and the latter is slower beside others.
.PHONY: test-suites
test-suites: build ## Run the suites of test-e2e, test-aggregated and test-soak, as many at once as there are processors.
	SVC=$(BIN)/svc SVCLET=$(BIN)/svclet $(GO) test -count=1 -timeout 45m ./test/e2e ./test/controllers ./test/faults ./test/spec ./test/aggregated ./test/soak

.PHONY: test-e2e
test-e2e: build ## Run the end-to-end suites against bin/svc, with its kubectl or $KUBECTL.
	SVC=$(BIN)/svc $(GO) test -count=1 -timeout 45m ./test/e2e ./test/spec ./test/controllers ./test/faults $(ARGS)

.PHONY: test-faults
test-faults: build ## Run the suite of faults only, its check of linearizability for longer (LINEARIZE=1h).
	SVC=$(BIN)/svc $(GO) test -count=1 -timeout 0 -v ./test/faults $(ARGS)

.PHONY: test-fleet
test-fleet: build ## Run many node agents at once, with runtimes that run nothing (FLEET=20).
	SVC=$(BIN)/svc SVCLET=$(BIN)/svclet $(GO) test -count=1 -timeout 45m -v ./test/fleet

.PHONY: test-node
test-node: build ## Run pods on this machine, as root on Linux; installs what that takes (CONTAINERD=2: with containerd 2, which it builds).
	@SVC=$(BIN)/svc SVCLET=$(BIN)/svclet hack/test-node.sh $(ARGS)

.PHONY: test-aggregated
test-aggregated: build ## Run a fleet behind a host: svc itself, the real kube-apiserver, which it builds (HOST=kube-apiserver), or in pods, as root (HOST=pods).
	@HOST=$(HOST) BIN=$(BIN) hack/test-aggregated.sh $(ARGS)

.PHONY: test-peers
test-peers: build ## Compare svc with the real kubelet and kube-apiserver, which it builds, as root on Linux.
	@SVC=$(BIN)/svc SVCLET=$(BIN)/svclet hack/test-peers.sh $(ARGS)

.PHONY: test-peers-validation
test-peers-validation: build ## Compare what svc and the real kube-apiserver, which it builds, answer to each field of each kind (ARGS='-report FILE').
	@hack/peers.sh
	SVC=$(BIN)/svc $(GO) test -count=1 -timeout 60m ./test/peers/validation $(ARGS)

.PHONY: test-peers-scheduler
test-peers-scheduler: ## Compare the scheduler's decisions about 10,000 random clusters with those of the real kube-scheduler's plugins, which it builds (ARGS='-runs 100').
	CGO_ENABLED=0 $(GO) -C hack/tools/kubernetes build -trimpath -o $(BIN)/schedule ./schedule
	ORACLE=$(BIN)/schedule $(GO) test -count=1 -timeout 30m ./controllers/scheduler/decision -run KubeScheduler -runs 10000 $(ARGS)

.PHONY: test-peers-allocation
test-peers-allocation: ## Compare the CPUs and the memory of containers on 10,000 random machines with those of the real kubelet, which it builds (ARGS='-runs 100').
	CGO_ENABLED=0 $(GO) -C hack/tools/kubernetes build -trimpath -o $(BIN)/allocate ./allocate
	ORACLE=$(BIN)/allocate $(GO) test -count=1 -timeout 30m ./svclet/cpus ./svclet/memory -run Kubelet -runs 10000 $(ARGS)

.PHONY: test-peers-eviction
test-peers-eviction: ## Compare the order in which pods are evicted on 10,000 random nodes with that of the real kubelet, which it builds (ARGS='-runs 100').
	CGO_ENABLED=0 $(GO) -C hack/tools/kubernetes build -trimpath -o $(BIN)/rank ./rank
	ORACLE=$(BIN)/rank $(GO) test -count=1 -timeout 30m ./svclet/eviction -run Kubelet -runs 10000 $(ARGS)

.PHONY: test-peers-access
test-peers-access: build ## Compare what svc and the real kube-apiserver, which it builds, authorize and admit.
	@hack/peers.sh
	SVC=$(BIN)/svc $(GO) test -count=1 -timeout 10m ./test/peers/access $(ARGS)

.PHONY: test-peers-proxy
test-peers-proxy: ## Compare what connections to random services become with the real kube-proxy, which it builds, as root on Linux (ARGS='-seed 2').
	@hack/peers.sh kube-proxy
	@hack/node-setup.sh
	KUBE_PROXY=$(BIN)/kube-proxy $(GO) test -count=1 -timeout 30m ./test/peers/proxy -v $(ARGS)

.PHONY: test-peers-release
test-peers-release: build ## Compare what svc serves at releases 1.36 and 1.28 with the real kube-apiservers, which it builds: discovery, fields, defaults, warnings and columns.
	@hack/peers.sh
	@hack/peers.sh kube-apiserver-1.28
	SVC=$(BIN)/svc $(GO) test -count=1 -timeout 10m ./test/peers/release $(ARGS)

.PHONY: test-peers-skew
test-peers-skew: build ## Try kubectl of old releases, which it builds, and of the newest one with svc at several releases, as the table in docs/releases.md says.
	@hack/peers.sh kubectl-1.20 kubectl-1.28
	SVC=$(BIN)/svc $(GO) test -count=1 -timeout 30m ./test/peers/skew $(ARGS)

.PHONY: test-releases
test-releases: build ## Try all 22 releases: what each serves, an object of each kind, and the end-to-end specs that hold at each (RELEASES='1.16 1.37': those specs only at these).
	SVC=$(BIN)/svc SVCLET=$(BIN)/svclet SVC_RELEASES=all $(GO) test -count=1 -timeout 30m ./test/spec -ginkgo.focus='each release' $(ARGS)
	@SVC=$(BIN)/svc hack/test-releases.sh $(RELEASES)

.PHONY: test-releases-cost
test-releases-cost: build ## Measure what a server of old and new releases costs, beside one of 1.28 (COST_ROUNDS=6).
	COST_ROUNDS=$(or $(COST_ROUNDS),6) SVC=$(BIN)/svc $(GO) test -count=1 -v -timeout 60m -run TestCostOfReleases ./test/peers/release

.PHONY: test-peers-controllers
test-peers-controllers: build ## Compare what svc's controllers and the real kube-controller-manager, which it builds, do in 940 scenarios (ARGS='-scenarios "^job"').
	@hack/peers.sh
	SVC=$(BIN)/svc $(GO) test -count=1 -timeout 60m ./test/peers/controllers $(ARGS)

.PHONY: test-peers-groups
test-peers-groups: build ## Compare how svc and the real kube-scheduler 1.37, which it builds, schedule pods in groups (ARGS='-scenarios "^gang"').
	@hack/peers.sh kube-scheduler-1.37
	SVC=$(BIN)/svc $(GO) test -count=1 -timeout 30m ./test/peers/groups $(ARGS)

.PHONY: test-peers-takeover
test-peers-takeover: build ## Let the real kube-controller-manager and kube-scheduler, which it builds, take over each controller from svc and give it back (ARGS='-of "^job"').
	@hack/peers.sh
	SVC=$(BIN)/svc $(GO) test -count=1 -timeout 60m ./test/peers/takeover -v $(ARGS)

.PHONY: test-conformance
test-conformance: build ## Run Kubernetes' own conformance tests, which it builds, against svc up and its node, as root on Linux (ARGS='-focus Watchers').
	@hack/peers.sh etcd conformance.test agnhost nonewprivs sample-apiserver ginkgo
	@hack/node-setup.sh busybox=busybox-static curl=curl dig=bind9-dnsutils nc=netcat-openbsd ip=iproute2 wget=wget
	SVC=$(BIN)/svc BIN=$(BIN) $(GO) test -count=1 -timeout 4h ./test/peers/conformance -v $(ARGS)

.PHONY: test-soak
test-soak: build ## Keep a whole system busy, and look at what is left (SOAK=60s).
	SVC=$(BIN)/svc $(GO) test -count=1 -timeout 0 -v ./test/soak

.PHONY: lint
lint: $(BIN)/golangci-lint lint-sarif ## Run the linters (.golangci.yml).
	$(BIN)/golangci-lint run --allow-parallel-runners ./...

.PHONY: lint-sarif
lint-sarif: ## Validate what svc convert prints as SARIF against the published schema, of which a linter has a copy.
	cd hack/tools/lint && $(GO) run ./sarif "$$($(GO) list -m -f '{{.Dir}}' github.com/securego/gosec/v2)/report/sarif/testdata/sarif-schema-2.1.0.json" $(CURDIR)/internal/convert/report/testdata/sarif*.golden

.PHONY: verify
verify: ## Check that generated code, go.mod and formatting are current.
	@hack/verify.sh

.PHONY: bench
bench: build ## Compare svc with Kubernetes' own programs on this machine.
	@hack/peers.sh
	@hack/node-setup.sh
	SVC=$(BIN)/svc $(GO) run ./test/bench $(ARGS)

.PHONY: bench-services
bench-services: ## Compare the speed of the service proxy with the real kube-proxy's, which it builds, as root on Linux.
	@MEASURE=true $(MAKE) --no-print-directory test-peers-proxy ARGS='-run Figures'

##@ Change

.PHONY: generate
generate: ## Regenerate the zz_generated files.
	@hack/generate.sh

.PHONY: clean
clean: ## Remove build output.
	rm -rf bin dist

.PHONY: help
help: ## List the targets.
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

# The linter is rebuilt when its pin changes.
$(BIN)/golangci-lint: hack/tools/lint/go.mod
	@mkdir -p $(BIN)
	cd hack/tools/lint && $(GO) build -ldflags '-s -w' -o $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	@touch $@
