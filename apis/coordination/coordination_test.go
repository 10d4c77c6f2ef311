package coordination

import (
	"testing"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestDefaultsAndTables(t *testing.T) { resourcetest.Golden(t, Kinds()) }

func TestLease(t *testing.T) {
	resourcetest.Rules(t, leases, `
metadata: {name: node-1, namespace: kube-node-lease}
spec:
  holderIdentity: node-1
  leaseDurationSeconds: 40
  renewTime: "2026-01-02T03:04:05.000006Z"
`, []resourcetest.Rule{
		{Name: "a node's lease is accepted"},
		{Name: "an empty lease is accepted", Change: `spec: null`},
		{Name: "the duration is positive", Change: `spec: {leaseDurationSeconds: 0}`,
			Want: []string{`spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0`}},
		{Name: "transitions are not negative", Change: `spec: {leaseTransitions: -1}`,
			Want: []string{`spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0`}},
		{Name: "the rules hold on update too", Update: true, Change: `spec: {leaseDurationSeconds: -1}`,
			Want: []string{`spec.leaseDurationSeconds: Invalid value: -1: must be greater than 0`}},
		{Name: "a holder may change", Update: true, Change: `spec: {holderIdentity: node-2}`},
		{Name: "a known strategy is accepted", Change: `spec: {strategy: OldestEmulationVersion, preferredHolder: b}`},
		{Name: "a strategy that Kubernetes does not define has a domain", Change: `spec: {strategy: example.com/newest}`},
		{Name: "an unknown strategy is refused", Change: `spec: {strategy: Newest}`,
			Want: []string{`spec.strategy: Unsupported value: "Newest": supported values: "OldestEmulationVersion"`}},
		{Name: "a preferred holder needs a strategy", Change: `spec: {preferredHolder: b}`,
			Want: []string{"spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined"}},
		{Name: "the name is a DNS subdomain", Change: `metadata: {name: Node_1}`,
			Want: []string{`metadata.name: Invalid value: "Node_1": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`}},
	})
}

func TestLeaseCandidate(t *testing.T) {
	resourcetest.Rules(t, leaseCandidates, `
metadata: {name: A_b, namespace: default}
spec: {leaseName: a, binaryVersion: 1.36.0, emulationVersion: 1.36.0, strategy: OldestEmulationVersion}
`, []resourcetest.Rule{
		{Name: "a candidate is accepted"},
		{Name: "a strategy of others has a domain", Change: `spec: {strategy: example.com/a, emulationVersion: ""}`},
		{Name: "other strategies are not supported", Change: `spec: {strategy: a}`, Want: []string{`spec.strategy: Unsupported value: "a": supported values: "OldestEmulationVersion"`}},
		{Name: "the strategy is by a version", Change: `spec: {emulationVersion: ""}`,
			Want: []string{"spec.emulationVersion: Required value: must be specified when `strategy` is 'OldestEmulationVersion'"}},
		{Name: "versions have three numbers", Change: `spec: {binaryVersion: a, strategy: example.com/a}`, Want: []string{
			`spec.binaryVersion: Invalid value: "a": must be a valid semantic version`,
			"spec.binaryVersion: Invalid value: \"a\": must be greater than or equal to `emulationVersion`"}},
		{Name: "no newer version is emulated", Change: `spec: {binaryVersion: 1.35.9}`,
			Want: []string{"spec.binaryVersion: Invalid value: \"1.35.9\": must be greater than or equal to `emulationVersion`"}},
		{Name: "the lease is immutable", Update: true, Change: `spec: {leaseName: b}`, Want: []string{`spec.leaseName: Invalid value: "b": field is immutable`}},
	})
}
