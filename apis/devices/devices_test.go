package devices

import (
	"context"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/apis/resource"
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
			Want: []string{"spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required"}},
		{Name: "a class is required", Change: `spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: ""}}]}}`,
			Want: []string{"spec.devices.requests[0].exactly.deviceClassName: Required value"}},
		{Name: "all devices are not counted", Change: `spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: a, allocationMode: All, count: 2}}]}}`,
			Want: []string{"spec.devices.requests[0].exactly.count: Invalid value: 2: must not be specified when allocationMode is 'All'"}},
		{Name: "a constraint is about requests of the claim", Change: `spec: {devices: {constraints: [{requests: [nic], matchAttribute: example.com/numa}]}}`,
			Want: []string{`spec.devices.constraints[0].requests[0]: Invalid value: "nic": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'`}},
		{Name: "an attribute has a domain", Change: `spec: {devices: {constraints: [{requests: [gpu], matchAttribute: numa}]}}`,
			Want: []string{`spec.devices.constraints[0].matchAttribute: Invalid value: "numa": a fully qualified name must be a domain and a name separated by a slash`}},
		{Name: "parameters are an object", Change: `spec: {devices: {config: [{opaque: {driver: gpu.example.com, parameters: [1]}}]}}`,
			Want: []string{`spec.devices.config[0].opaque.parameters: Invalid value: "<value omitted>": must be a valid JSON object`}},
	})
}

func TestDeviceClass(t *testing.T) {
	const bad = `spec: {selectors: [{cel: {expression: 'gone'}}, {cel: {expression: 'true'}}]}`
	refused := []string{"spec.selectors[0].cel.expression: Invalid value: \"gone\": compilation failed: ERROR: <input>:1:1: undeclared reference to 'gone' (in container '')\n | gone\n | ^"}
	long := `spec: {selectors: [{cel: {expression: '` + strings.Repeat("true || ", 1300) + `true'}}]}`
	const dear = `spec: {selectors: [{cel: {expression: '[1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, [1,2,3,4,5,6,7,8,9,10].all(f, a + b + c + d + e + f > 0))))))'}}]}`
	large := `spec: {config: [{opaque: {driver: a.example.com, parameters: {a: ` + strings.Repeat("b", 11_000) + `}}}]}`
	tooLarge := []string{"spec.config[0].opaque.parameters: Too long: may not be more than 10240 bytes"}
	resourcetest.Rules(t, deviceClasses, `
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: 'device.driver == "a"'}}, {cel: {expression: 'true'}}]}
`, []resourcetest.Rule{
		{Name: "a class is accepted"},
		{Name: "an expression is compiled", Change: bad, Want: refused},
		{Name: "an expression that changes is compiled", Change: bad, Update: true, Want: refused},
		{Name: "an expression that was stored is not compiled", Change: bad + "\nmetadata: {labels: {a: b}}", Was: bad, Update: true},
		{Name: "a stored expression is compiled when another one changes", Change: bad, Update: true, Want: refused,
			Was: `spec: {selectors: [{cel: {expression: 'gone'}}, {cel: {expression: 'false'}}]}`},
		{Name: "a stored expression that is too long is kept", Change: long + "\nmetadata: {labels: {a: b}}", Was: long, Update: true},
		{Name: "an expression that becomes too long", Change: long, Update: true, Want: []string{"spec.selectors[0].cel.expression: Too long: may not be more than 10240 bytes"}},
		{Name: "an expression that becomes too dear", Change: dear, Update: true, Want: []string{"spec.selectors[0].cel.expression: Forbidden: too complex, exceeds cost limit"}},
		{Name: "a stored expression that is too dear is kept", Change: dear + "\nmetadata: {labels: {a: b}}", Was: dear, Update: true},
		{Name: "stored parameters that are too long are kept", Change: large + "\nmetadata: {labels: {a: b}}", Was: large, Update: true},
		{Name: "parameters are limited", Change: large, Want: tooLarge},
		{Name: "parameters that become too long", Change: large, Update: true, Want: tooLarge},
		{Name: "stored parameters are measured when others change", Change: large, Update: true, Want: tooLarge,
			Was: strings.Replace(large, "driver: a.example.com", "driver: b.example.com", 1)},
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
			Want: []string{"spec: Required value: exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"}},
		{Name: "a pool has slices", Change: `spec: {pool: {resourceSliceCount: 0}}`, Want: []string{"spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero"}},
		{Name: "devices have different names", Change: `spec: {devices: [{name: gpu-0}, {name: gpu-0}]}`, Want: []string{`spec.devices[1]: Duplicate value: "gpu-0"`}},
		{Name: "an attribute has one value", Change: `spec: {devices: [{name: gpu-0, attributes: {model: {string: a, int: 1}}}]}`,
			Want: []string{`spec.devices[0].attributes[model]: Invalid value: {"int":1,"string":"a"}: exactly one value must be specified`}},
		{Name: "an attribute has a value", Change: `spec: {devices: [{name: gpu-0, attributes: {model: {strings: []}}}]}`,
			Want: []string{`spec.devices[0].attributes[model].strings: Invalid value: []: must not be empty if specified`}},
		{Name: "a version has three numbers", Change: `spec: {devices: [{name: gpu-0, attributes: {model: null, driver: {version: "1.2"}}}]}`,
			Want: []string{`spec.devices[0].attributes[driver].version: Invalid value: "1.2": must be a string compatible with semver.org spec 2.0.0`}},
		{Name: "two kinds of nodes", Change: `spec: {allNodes: true}`,
			Want: []string{"spec: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required, but multiple fields are set"}},
		{Name: "each device has nodes", Change: `spec: {nodeName: null, perDeviceNodeSelection: true, devices: [{name: gpu-0, nodeName: ""}, {name: gpu-1, allNodes: true}]}`,
			Want: []string{`spec.devices[0].nodeName: Invalid value: "": must not be empty`,
				"spec.devices[0]: Required value: exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"}},
		{Name: "counters and devices exclude each other", Change: `spec: {sharedCounters: [{name: "", counters: {"A!": {value: "1"}}}]}`,
			Want: []string{"spec: Invalid value: \"\": only one of `sharedCounters` or `devices` is allowed", "spec.sharedCounters[0].name: Required value",
				`spec.sharedCounters[0].counters: Invalid value: "A!": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')`}},
		{Name: "a counter set is consumed once", Change: `spec: {devices: [{name: gpu-0, consumesCounters: [{counterSet: a, counters: {b: {value: "1"}}}, {counterSet: a}]}]}`,
			Want: []string{`spec.devices[0].consumesCounters[1]: Duplicate value: "a"`, "spec.devices[0].consumesCounters[1].counters: Required value"}},
		{Name: "binding conditions come with failures", Change: `spec: {devices: [{name: gpu-0, bindingConditions: [a]}]}`,
			Want: []string{"spec.devices[0].bindingFailureConditions: Invalid value: null: bindingFailureConditions are required to use bindingConditions"}},
		{Name: "a binding condition is no failure", Change: `spec: {devices: [{name: gpu-0, bindingConditions: [a], bindingFailureConditions: [a]}]}`,
			Want: []string{`spec.devices[0].bindingFailureConditions[0]: Invalid value: "a": bindingFailureConditions must not overlap with bindingConditions`}},
		{Name: "a capacity that is not shared has no policy", Change: `spec: {devices: [{name: gpu-0, capacity: {memory: {value: 8Gi, requestPolicy: {default: 1Gi}}}}]}`,
			Want: []string{"spec.devices[0].capacity[memory].requestPolicy: Forbidden: allowMultipleAllocations must be true"}},
		{Name: "a taint has an effect", Change: `spec: {devices: [{name: gpu-0, taints: [{key: a}]}]}`, Want: []string{"spec.devices[0].taints[0].effect: Required value"}},
	})
}

const sharedSlice = `
metadata: {name: a}
spec:
  driver: gpu.example.com
  nodeName: node-1
  pool: {name: node-1, generation: 1, resourceSliceCount: 1}
  devices: [{name: gpu-0, allowMultipleAllocations: true, capacity: {memory: {value: 8Gi}}}]
`

func TestPoliciesOfCapacities(t *testing.T) {
	resourcetest.Rules(t, resourceSlices, sharedSlice, []resourcetest.Rule{
		{Name: "some values", Change: policy(`{default: 2Gi, validValues: [1Gi, 2Gi]}`)},
		{Name: "a range", Change: policy(`{default: 2Gi, validRange: {min: 1Gi, max: 8Gi, step: 1Gi}}`)},
		{Name: "values and a range", Change: policy(`{default: 2Gi, validValues: [2Gi], validRange: {min: 1Gi}}`),
			Want: []string{`spec.devices[0].capacity[memory].requestPolicy: Forbidden: exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time`}},
		{Name: "values without a default", Change: policy(`{validValues: [2Gi]}`),
			Want: []string{"spec.devices[0].capacity[memory].requestPolicy.default: Required value: required when validValues is defined"}},
		{Name: "values above the capacity, in no order and without the default", Change: policy(`{default: 3Gi, validValues: [16Gi, 1Gi, 1Gi]}`),
			Want: []string{
				`spec.devices[0].capacity[memory].requestPolicy.validValues[1]: Invalid value: "1Gi": values must be sorted in ascending order`,
				`spec.devices[0].capacity[memory].requestPolicy.validValues[0]: Invalid value: "16Gi": option is larger than capacity value: 8Gi`,
				`spec.devices[0].capacity[memory].requestPolicy.validValues[2]: Duplicate value: "1073741824"`,
				`spec.devices[0].capacity[memory].requestPolicy.validValues: Invalid value: "3Gi": default value is not valid according to the requestPolicy`,
			}},
		{Name: "a range without a minimum", Change: policy(`{default: 2Gi, validRange: {max: 4Gi}}`),
			Want: []string{"spec.devices[0].capacity[memory].requestPolicy.validRange.min: Required value: required when validRange is defined"}},
		{Name: "a default outside of the range", Change: policy(`{default: 6Gi, validRange: {min: 1Gi, max: 4Gi}}`),
			Want: []string{`spec.devices[0].capacity[memory].requestPolicy.validRange.max: Invalid value: "6Gi": default is more than max: 4Gi`}},
		{Name: "a range beyond the capacity", Change: policy(`{default: 2Gi, validRange: {min: 1Gi, max: 16Gi, step: 16Gi}}`),
			Want: []string{
				`spec.devices[0].capacity[memory].requestPolicy.validRange.max: Invalid value: "16Gi": max is larger than capacity value: 8Gi`,
				`spec.devices[0].capacity[memory].requestPolicy.validRange.step: Invalid value: "16Gi": one step 17Gi is larger than capacity value: 8Gi`,
				`spec.devices[0].capacity[memory].requestPolicy.validRange.step: Invalid value: "2Gi": value is not a multiple of a given step (16Gi) from (1Gi)`,
				`spec.devices[0].capacity[memory].requestPolicy.validRange.step: Invalid value: "16Gi": value is not a multiple of a given step (16Gi) from (1Gi)`,
			}},
		{Name: "values that differ in a fraction", Change: policy(`{default: 1500m, validValues: ["1", 1500m, "2"]}`)},
		{Name: "a range in fractions", Change: policy(`{default: "2", validRange: {min: 500m, max: 3500m, step: 1500m}}`)},
		{Name: "a default that is not some fractions above the minimum", Change: policy(`{default: 600m, validRange: {min: 250m, step: 250m}}`),
			Want: []string{`spec.devices[0].capacity[memory].requestPolicy.validRange.step: Invalid value: "600m": value is not a multiple of a given step (250m) from (250m)`}},
		{Name: "a default in fractions of a range in integers", Change: policy(`{default: 1500m, validRange: {min: "1", step: "1"}}`),
			Want: []string{`spec.devices[0].capacity[memory].requestPolicy.validRange.step: Invalid value: "1500m": value is not a multiple of a given step (1) from (1)`}},
		{Name: "fractions smaller than a thousandth", Change: policy(`{default: "1", validRange: {min: 100u, max: 100200u}}`),
			Want: []string{
				`spec.devices[0].capacity[memory].requestPolicy.validRange.max: Invalid value: "1": default is more than max: 100200u`,
				`spec.devices[0].capacity[memory].requestPolicy.validRange.max: Invalid value: "100200u": value cannot be represented as a milli value`,
				`spec.devices[0].capacity[memory].requestPolicy.validRange.min: Invalid value: "100u": value cannot be represented as a milli value`,
			}},
		{Name: "a negative minimum", Change: policy(`{default: "2", validRange: {min: "-1", step: "1"}}`),
			Want: []string{`spec.devices[0].capacity[memory].requestPolicy.validRange.min: Invalid value: "-1": must be greater than or equal to 0`}},
		{Name: "numbers that are too large for an int64", Change: policy(`{default: "1", validRange: {min: "1", max: 10E, step: 100E}}`),
			Want: []string{
				`spec.devices[0].capacity[memory].requestPolicy.validRange.max: Invalid value: "10E": max is larger than capacity value: 8Gi`,
				`spec.devices[0].capacity[memory].requestPolicy.validRange.step: Invalid value: "100E": one step 100000000000000000001 is larger than capacity value: 8Gi`,
				`spec.devices[0].capacity[memory].requestPolicy.validRange.max: Invalid value: "10E": must not be larger than 9223372036854775807`,
				`spec.devices[0].capacity[memory].requestPolicy.validRange.step: Invalid value: "100E": must not be larger than 9223372036854775807`,
			}},
		{Name: "a step of zero", Change: policy(`{default: 2Gi, validRange: {min: 1Gi, step: "0"}}`),
			Want: []string{`spec.devices[0].capacity[memory].requestPolicy.validRange.step: Invalid value: "0": must be greater than zero`}},
	})
}

func TestPoliciesOfCapacitiesAreInIntegersWithoutFractions(t *testing.T) {
	slices := resourceSlices
	slices.Validate = ValidateSliceWithoutFractions
	resourcetest.Rules(t, slices, sharedSlice, []resourcetest.Rule{
		{Name: "values that differ in a fraction", Change: policy(`{default: 1500m, validValues: ["1", 1500m, "2"]}`),
			Want: []string{`spec.devices[0].capacity[memory].requestPolicy.validValues[2]: Duplicate value: "2"`}},
		{Name: "a fraction is rounded up", Change: policy(`{default: "1", validRange: {min: 500m, step: "1"}}`)},
		{Name: "a fraction smaller than a thousandth, too", Change: policy(`{default: "1", validRange: {min: 100u, step: 100u}}`)},
		{Name: "a number that is too large for an int64", Change: policy(`{default: "1", validRange: {min: 500m, step: 100E}}`),
			Want: []string{
				`spec.devices[0].capacity[memory].requestPolicy.validRange.step: Invalid value: "100E": one step 100000000000000000000500m is larger than capacity value: 8Gi`,
				`spec.devices[0].capacity[memory].requestPolicy.validRange.step: Invalid value: "100E": must not be larger than 9223372036854775807`,
			}},
	})
}

// policy is a change that gives the capacity of the only device a policy.
func policy(yaml string) string {
	return `spec: {devices: [{name: gpu-0, allowMultipleAllocations: true, capacity: {memory: {value: 8Gi, requestPolicy: ` + yaml + `}}}]}`
}

func TestResourceClaimTemplate(t *testing.T) {
	resourcetest.Rules(t, resourceClaimTemplates, `
metadata: {name: gpu, namespace: default}
spec:
  metadata: {labels: {a: b}, annotations: {c: d}}
  spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com, tolerations: [{}]}}]}}
`, []resourcetest.Rule{
		{Name: "labels and annotations of claims are set"},
		{Name: "other metadata of claims is not", Change: `spec: {metadata: {name: a, generation: 1, finalizers: [], ownerReferences: [{}]}}`, Want: []string{
			"spec.metadata.name: Forbidden: cannot be set", "spec.metadata.generation: Forbidden: cannot be set",
			"spec.metadata.finalizers: Forbidden: cannot be set", "spec.metadata.ownerReferences: Forbidden: cannot be set"}},
	})
}

func TestStatusOfResourceClaim(t *testing.T) {
	was := `
status:
  allocation: {devices: {results: [{request: gpu, driver: gpu.example.com, pool: a, device: gpu-0}]}}
`
	resourcetest.Rules(t, resourceClaims, `
metadata: {name: gpu, namespace: default}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}
`, []resourcetest.Rule{
		{Name: "an allocation is accepted", Status: true, Change: was},
		{Name: "a driver reports on its device", Status: true, Was: was, Change: was + `  devices: [{driver: gpu.example.com, pool: a, device: gpu-0}]`},
		{Name: "a driver reports on no other device", Status: true, Was: was, Change: was + `  devices: [{driver: gpu.example.com, pool: a, device: gpu-1}]`,
			Want: []string{`status.devices[0]: Invalid value: "gpu.example.com/a/gpu-1": must be an allocated device in the claim`}},
		{Name: "a client that deallocates a claim may keep the reports on its devices", Status: true,
			Was: was + `  devices: [{driver: gpu.example.com, pool: a, device: gpu-0}]`, Change: `status: {devices: [{driver: gpu.example.com, pool: a, device: gpu-0}]}`},
		{Name: "a client that deallocates a claim reports on no other device", Status: true,
			Was: was, Change: `status: {devices: [{driver: gpu.example.com, pool: a, device: gpu-0}, {driver: gpu.example.com, pool: a, device: gpu-1}]}`,
			Want: []string{`status.devices[0]: Invalid value: "gpu.example.com/a/gpu-1": must be an allocated device in the claim`}},
		{Name: "a share has a UID", Status: true,
			Change: `status: {allocation: {devices: {results: [{request: gpu, driver: gpu.example.com, pool: a, device: gpu-0, shareID: a}]}}}`,
			Want:   []string{`status.allocation.devices.results[0].shareID: Invalid value: "a": must be a lowercase UUID in 8-4-4-4-12 format`}},
		{Name: "a result is for a request", Status: true,
			Change: `status: {allocation: {devices: {results: [{request: gpu/a, driver: gpu.example.com, pool: a, device: gpu-0}]}}}`,
			Want:   []string{`status.allocation.devices.results[0].request: Invalid value: "gpu/a": must be the name of a request in the claim or the name of a request and a subrequest separated by '/'`}},
		{Name: "a consumer reserves a claim that is allocated", Status: true, Change: `status: {reservedFor: [{resource: pods, name: a, uid: b}]}`,
			Want: []string{"status.reservedFor: Forbidden: may not be specified when `allocated` is not set"}},
	})
}

func TestAReportOnADeviceEndsWithItsAllocation(t *testing.T) {
	const (
		gpu    = `{request: gpu, driver: gpu.example.com, pool: a, device: gpu-0}`
		share  = `{request: gpu, driver: gpu.example.com, pool: a, device: gpu-0, shareID: 1c8b8a5e-32dd-4b0d-9d4d-0c7f0f3a4a10}`
		second = `{request: gpu, driver: gpu.example.com, pool: a, device: gpu-1}`
	)
	const reports = `devices: [{driver: gpu.example.com, pool: a, device: gpu-0}, {driver: gpu.example.com, pool: a, device: gpu-0, shareID: 1c8b8a5e-32dd-4b0d-9d4d-0c7f0f3a4a10},
		{driver: gpu.example.com, pool: a, device: gpu-1}, {driver: gpu.example.com, pool: a, device: gpu-2}]`
	for _, test := range []struct {
		rule        string
		before, now []string // the results of the allocation
		want        []string
	}{
		{"no report is removed while the allocation stays", []string{gpu, share, second}, []string{gpu, share, second}, []string{"gpu-0", "gpu-0 share", "gpu-1", "gpu-2"}},
		{"reports on devices that were allocated are removed", []string{gpu, share, second}, nil, []string{"gpu-2"}},
		{"a share is a device of its own", []string{share}, nil, []string{"gpu-0", "gpu-1", "gpu-2"}},
		{"reports on devices that stay allocated are kept", []string{gpu, share, second}, []string{share}, []string{"gpu-0 share", "gpu-2"}},
		{"reports on devices of a claim that was not allocated are kept", nil, nil, []string{"gpu-0", "gpu-0 share", "gpu-1", "gpu-2"}},
	} {
		t.Run(test.rule, func(t *testing.T) {
			k := resourceClaims.Kind()
			claim := func(results []string) runtime.Object {
				status := "status: {" + reports
				if results != nil {
					status += ", allocation: {devices: {results: [" + strings.Join(results, ", ") + "]}}"
				}
				return resourcetest.Object(t, k, "metadata: {name: gpu, namespace: default}", status+"}")
			}
			obj := claim(test.now).(*resourcev1.ResourceClaim)
			k.PrepareStatus(nil, obj, claim(test.before))
			var got []string
			for _, d := range obj.Status.Devices {
				name := d.Device
				if d.ShareID != nil {
					name += " share"
				}
				got = append(got, name)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("got reports on %v, want %v", got, test.want)
			}
		})
	}
}

// namespaces are the objects of a server whose namespaces have labels.
type namespaces struct {
	resource.Objects
	labels map[string]string
}

func (n namespaces) Get(_ context.Context, _, name string) (runtime.Object, error) {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: n.labels}}, nil
}

func TestTheNamespaceAllowsAdministrativeAccess(t *testing.T) {
	const rule = "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label on the containing namespace"
	asks := &resourcev1.ResourceClaim{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{Requests: []resourcev1.DeviceRequest{
		{Exactly: &resourcev1.ExactDeviceRequest{AdminAccess: new(true)}},
	}}}}
	has := &resourcev1.ResourceClaim{Status: resourcev1.ResourceClaimStatus{Allocation: &resourcev1.AllocationResult{
		Devices: resourcev1.DeviceAllocationResult{Results: []resourcev1.DeviceRequestAllocationResult{{}, {AdminAccess: new(true)}}},
	}}}
	for value, allowed := range map[string]bool{"true": true, "": false} {
		env := &resource.Env{Objects: func(schema.GroupResource) resource.Objects {
			return namespaces{labels: map[string]string{resourcev1.DRAAdminNamespaceLabelKey: value}}
		}}
		_, err := resourceClaims.BeginCreate(t.Context(), env, asks, false)
		if (err == nil) != allowed || err != nil && !(apierrors.IsInvalid(err) && strings.Contains(err.Error(), "spec.devices.requests[0].exactly.adminAccess: Forbidden: "+rule)) {
			t.Errorf("a claim that asks for access, with the label %q: %v", value, err)
		}
		var want []string
		if !allowed {
			want = []string{"status.allocation.devices.results[1].adminAccess: Forbidden: " + rule}
		}
		resourcetest.Errors(t, allowAdminResults(env, has, &resourcev1.ResourceClaim{}), want...)
		resourcetest.Errors(t, allowAdminResults(env, has, has))
	}
}

func TestResourcePoolStatusRequest(t *testing.T) {
	const pool = `driver: gpu.example.com, poolName: a, generation: 1`
	resourcetest.Rules(t, poolStatusRequests, `
metadata: {name: gpus}
spec: {driver: gpu.example.com, poolName: node-1/a}
`, []resourcetest.Rule{
		{Name: "a request is accepted"},
		{Name: "a driver is required", Change: `spec: {driver: ""}`, Want: []string{`spec.driver: Required value`}},
		{Name: "a limit is in its range", Change: `spec: {limit: 0}`, Want: []string{`spec.limit: Invalid value: 0: must be greater than or equal to 1`}},
		{Name: "a limit is not too great", Change: `spec: {limit: 1001}`, Want: []string{`spec.limit: Invalid value: 1001: must be less than or equal to 1000`}},
		{Name: "an attribute has a domain", Change: `spec: {defaultPartitionTypeAttribute: profile}`,
			Want: []string{`spec.defaultPartitionTypeAttribute: Invalid value: "profile": a fully qualified name must be a domain and a name separated by a slash`}},
		{Name: "a request is kept", Update: true, Change: `spec: {limit: 5}`,
			Want: []string{`spec: Invalid value: {"driver":"gpu.example.com","poolName":"node-1/a","limit":5}: field is immutable`}},
		{Name: "a status is accepted", Status: true, Change: `status: {poolCount: 1, pools: [{` + pool + `, totalDevices: 0, partitionSummary: [{attribute: a/b, type: Full, total: 1, allocatable: 0}],
			shareableSummary: {fullyAvailableDevices: 1, partiallyAvailableDevices: 0, capacity: [{name: memory, total: 1, consumed: 0, available: 1}]}}]}`},
		{Name: "a status is set once", Status: true, Was: `status: {poolCount: 0}`, Change: `status: {poolCount: 1}`,
			Want: []string{`status: Invalid value: {"poolCount":1}: field is immutable`}},
		{Name: "a count is required", Status: true, Change: `status: {pools: [{` + pool + `, totalDevices: -1, resourceSliceCount: 0, nodeName: A_, validationError: "` + strings.Repeat("a", 257) + `"}, {}]}`, Want: []string{
			`status.poolCount: Required value`,
			`status.pools[0].nodeName: Invalid value: "A_": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
			`status.pools[0].resourceSliceCount: Invalid value: 0: must be greater than or equal to 1`,
			`status.pools[0].totalDevices: Invalid value: -1: must be greater than or equal to 0`,
			`status.pools[0].validationError: Too long: may not be more than 256 bytes`,
			`status.pools[1].driver: Required value`, `status.pools[1].generation: Required value`, `status.pools[1].poolName: Required value`}},
		{Name: "summaries are complete", Status: true, Change: `status: {poolCount: 1, pools: [{` + pool + `, partitionSummary: [{}, {}], shareableSummary: {capacity: [{}]}}]}`, Want: []string{
			`status.pools[0].partitionSummary[0].allocatable: Required value`, `status.pools[0].partitionSummary[0].attribute: Required value`,
			`status.pools[0].partitionSummary[0].total: Required value`, `status.pools[0].partitionSummary[0].type: Required value`,
			`status.pools[0].partitionSummary[1].allocatable: Required value`, `status.pools[0].partitionSummary[1].attribute: Required value`,
			`status.pools[0].partitionSummary[1].total: Required value`, `status.pools[0].partitionSummary[1].type: Required value`,
			`status.pools[0].partitionSummary[1]: Duplicate value: "="`,
			`status.pools[0].shareableSummary.capacity[0].available: Required value`, `status.pools[0].shareableSummary.capacity[0].consumed: Required value`,
			`status.pools[0].shareableSummary.capacity[0].name: Required value`, `status.pools[0].shareableSummary.capacity[0].total: Required value`,
			`status.pools[0].shareableSummary.fullyAvailableDevices: Required value`, `status.pools[0].shareableSummary.partiallyAvailableDevices: Required value`}},
	})
}
