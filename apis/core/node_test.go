package core

import (
	"testing"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestNodeRules(t *testing.T) {
	resourcetest.Rules(t, nodes, `metadata: {name: node-1.example.com}`, []resourcetest.Rule{
		{Name: "a node is accepted"},
		{Name: "a taint has a key and a known effect", Change: `spec: {taints: [{key: a b, effect: Never}, {key: c, value: "d "}]}`, Want: []string{
			`metadata.taints[0].key: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
			`metadata.taints[0].effect: Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"`,
			`metadata.taints[1].value: Invalid value: "d ": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`,
			"metadata.taints[1].effect: Required value"}},
		{Name: "a taint is unique by key and effect", Change: `spec: {taints: [{key: a, effect: NoExecute}, {key: a, effect: NoSchedule}, {key: a, value: b, effect: NoExecute}]}`, Want: []string{
			`metadata.taints[2]: Duplicate value: {"key":"a","value":"b","effect":"NoExecute"}: taints must be unique by key and effect pair`}},
		{Name: "taints in the annotation of old are taints", Change: `metadata: {annotations: {scheduler.alpha.kubernetes.io/taints: '[{"key":"a"}]'}}`, Want: []string{
			"metadata.annotations.scheduler.alpha.kubernetes.io/taints[0].effect: Required value"}},
		{Name: "which is JSON", Change: `metadata: {annotations: {scheduler.alpha.kubernetes.io/taints: '['}}`, Want: []string{
			`metadata.annotations: Invalid value: "scheduler.alpha.kubernetes.io/taints": unexpected end of JSON input`}},
		{Name: "pods to be avoided are told by their controller", Change: `metadata: {annotations: {scheduler.alpha.kubernetes.io/preferAvoidPods: '{"preferAvoidPods":[{},{"podSignature":{"podController":{}}},{"podSignature":{"podController":{"controller":true}}}]}'}}`, Want: []string{
			"metadata.annotations.scheduler.alpha.kubernetes.io/preferAvoidPods[0].PodSignature: Required value",
			"metadata.annotations.scheduler.alpha.kubernetes.io/preferAvoidPods[1].PodSignature.PodController.Controller: Invalid value: false: must point to a controller"}},
		{Name: "in JSON too", Change: `metadata: {annotations: {scheduler.alpha.kubernetes.io/preferAvoidPods: '['}}`, Want: []string{
			`metadata.annotations.AvoidPods: Invalid value: "scheduler.alpha.kubernetes.io/preferAvoidPods": unexpected end of JSON input`}},
		{Name: "pods get a range of each family", Change: `spec: {podCIDRs: [10.0.0.0/24, 10.0.1.0/24]}`, Want: []string{
			`spec.podCIDRs: Invalid value: ["10.0.0.0/24","10.0.1.0/24"]: may specify no more than one CIDR for each IP family`}},
		{Name: "pods get ranges", Change: `spec: {podCIDR: 10.0.0.0}`, Want: []string{
			`spec.podCIDRs[0]: Invalid value: "10.0.0.0": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)`}},
		{Name: "resources are not negative, and what is counted is whole", Change: `status: {capacity: {cpu: "-1", pods: "1.5", example.com/gpu: 500m}, allocatable: {}}`, Want: []string{
			`status.capacity.cpu: Invalid value: "-1": must be greater than or equal to 0`,
			`status.capacity.pods: Invalid value: "1500m": must be an integer`,
			`status.capacity.example.com/gpu: Invalid value: "500m": must be an integer`}},
		{Name: "declared features are sorted names", Change: `status: {declaredFeatures: [B, A/b, A/b, a]}`, Want: []string{
			`status.declaredFeatures[1]: Invalid value: "A/b": list must be sorted alphabetically`,
			`status.declaredFeatures[2]: Duplicate value: "A/b"`,
			`status.declaredFeatures[3]: Invalid value: "a": invalid feature name "a": must start with an UpperCamelCase segment, with subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes`}},
		{Name: "swap has a size", Change: `status: {nodeInfo: {swap: {capacity: 0}}}`, Want: []string{
			"status.nodeInfo.swap.capacity: Invalid value: 0: must be greater than zero"}},
		{Name: "what a controller fills in can be set once", Update: true, Change: `spec: {podCIDR: 10.0.0.0/24, providerID: a}`},
		{Name: "and then stays", Update: true, Change: `spec: {podCIDR: 10.0.1.0/24, providerID: b, externalID: c}`, Was: `spec: {podCIDR: 10.0.0.0/24, providerID: a}`, Want: []string{
			`spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid`,
			`spec.providerID: Forbidden: node updates may not change providerID except from "" to valid`,
			"spec.externalID: Forbidden: may not be updated"}},
		{Name: "an address is listed once", Status: true, Change: `status: {addresses: [{type: InternalIP, address: 10.0.0.1}, {type: InternalIP, address: 10.0.0.1}]}`, Want: []string{
			`status.addresses[1]: Duplicate value: {"type":"InternalIP","address":"10.0.0.1"}`}},
	})
}
