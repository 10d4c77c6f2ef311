package devices

import (
	"testing"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestDefaultsAndTables(t *testing.T) { resourcetest.Golden(t, Kinds()) }

func TestResourceClaim(t *testing.T) {
	resourcetest.Rules(t, resourceClaims, `
metadata: {name: gpu, namespace: default}
spec:
  devices:
    requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com, selectors: [{cel: {expression: 'device.driver == "a"'}}]}}]
    constraints: [{requests: [gpu], matchAttribute: example.com/numa}]
    config: [{requests: [gpu], opaque: {driver: gpu.example.com, parameters: {a: b}}}]
`, []resourcetest.Rule{
		{Name: "a claim is accepted"},
		{Name: "a request has one form", Change: `spec: {devices: {requests: [{name: gpu}]}}`,
			Want: []string{"spec.devices.requests[0]: Required value: exactly one of `exactly` and `firstAvailable` is required"}},
		{Name: "a class is required", Change: `spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: ""}}]}}`,
			Want: []string{"spec.devices.requests[0].exactly.deviceClassName: Required value"}},
		{Name: "all devices are not counted", Change: `spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: a, allocationMode: All, count: 2}}]}}`,
			Want: []string{"spec.devices.requests[0].exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'"}},
		{Name: "a constraint is about requests of the claim", Change: `spec: {devices: {constraints: [{requests: [nic], matchAttribute: example.com/numa}]}}`,
			Want: []string{`spec.devices.constraints[0].requests[0]: Invalid value: "nic": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'`}},
		{Name: "an attribute has a domain", Change: `spec: {devices: {constraints: [{requests: [gpu], matchAttribute: numa}]}}`,
			Want: []string{`spec.devices.constraints[0].matchAttribute: Invalid value: "numa": must include a domain, such as example.com/numa`}},
		{Name: "parameters are an object", Change: `spec: {devices: {config: [{opaque: {driver: gpu.example.com, parameters: [1]}}]}}`,
			Want: []string{`spec.devices.config[0].opaque.parameters: Invalid value: "<value omitted>": must be a valid JSON object`}},
	})
}

func TestResourceSlice(t *testing.T) {
	resourcetest.Rules(t, resourceSlices, `
metadata: {name: a}
spec:
  driver: gpu.example.com
  nodeName: node-1
  pool: {name: node-1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0, attributes: {model: {string: a}}}]
`, []resourcetest.Rule{
		{Name: "a slice is accepted"},
		{Name: "a slice has nodes", Change: `spec: {nodeName: null}`,
			Want: []string{"spec: Invalid value: null: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"}},
		{Name: "a pool has slices", Change: `spec: {pool: {resourceSliceCount: 0}}`, Want: []string{"spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero"}},
		{Name: "devices have different names", Change: `spec: {devices: [{name: gpu-0}, {name: gpu-0}]}`, Want: []string{`spec.devices[1].name: Duplicate value: "gpu-0"`}},
		{Name: "an attribute has one value", Change: `spec: {devices: [{name: gpu-0, attributes: {model: {string: a, int: 1}}}]}`,
			Want: []string{"spec.devices[0].attributes[model]: Invalid value: null: exactly one value must be specified"}},
		{Name: "a taint has an effect", Change: `spec: {devices: [{name: gpu-0, taints: [{key: a}]}]}`, Want: []string{"spec.devices[0].taints[0].effect: Required value"}},
	})
}
