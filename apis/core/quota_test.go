package core

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestResourceQuotaRules(t *testing.T) {
	const values = "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
	resourcetest.Rules(t, resourceQuotas, `
metadata: {name: quota, namespace: default}
spec: {hard: {pods: "10", requests.cpu: "4", count/deployments.apps: "3", requests.hugepages-2Mi: 4Mi}}
`, []resourcetest.Rule{
		{Name: "a quota is accepted"},
		{Name: "resources are known or have a domain", Change: `spec: {hard: {storage: "1", cups: "1"}}`, Want: []string{
			`spec.hard[storage]: Invalid value: "storage": must be a standard resource for quota`,
			`spec.hard[cups]: Invalid value: "cups": must be a standard resource type or fully qualified`,
			`spec.hard[cups]: Invalid value: "cups": must be a standard resource for quota`}},
		{Name: "amounts are not negative, and what is counted is whole", Change: `spec: {hard: {pods: "1.5", requests.cpu: "-1"}}`, Want: []string{
			`spec.hard[pods]: Invalid value: "1500m": must be an integer`, `spec.hard[requests.cpu]: Invalid value: "-1": must be greater than or equal to 0`}},
		{Name: "scopes are known and agree", Change: `spec: {scopes: [Other, Terminating, NotTerminating], hard: {count/deployments.apps: null, requests.hugepages-2Mi: null}}`, Want: []string{
			`spec.scopes: Invalid value: ["Other","Terminating","NotTerminating"]: unsupported scope`,
			`spec.scopes: Invalid value: ["Other","Terminating","NotTerminating"]: conflicting scopes`}},
		{Name: "a scope has the resource", Change: `spec: {scopes: [BestEffort], hard: {requests.hugepages-2Mi: null}}`, Want: []string{
			`spec.scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource`}},
		{Name: "a selector of scopes is complete", Change: `spec: {hard: {requests.hugepages-2Mi: null}, scopeSelector: {matchExpressions: [
			{scopeName: PriorityClass, operator: In}, {scopeName: Terminating, operator: DoesNotExist}, {scopeName: PriorityClass, operator: Exists, values: [a]}]}}`, Want: []string{
			"spec.scopeSelector.matchExpressions.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
			`spec.scopeSelector.matchExpressions.operator: Invalid value: "DoesNotExist": ` + values,
			"spec.scopeSelector.matchExpressions.values: Invalid value: [\"a\"]: must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"}},
		{Name: "scopes stay", Update: true, Change: `spec: {scopes: [BestEffort], hard: {requests.cpu: null, requests.hugepages-2Mi: null}}`,
			Want: []string{`spec.scopes: Invalid value: ["BestEffort"]: field is immutable`}},
		{Name: "use is of known resources", Status: true, Change: `status: {used: {cups: "1"}}`, Want: []string{
			`status.used[cups]: Invalid value: "cups": must be a standard resource type or fully qualified`,
			`status.used[cups]: Invalid value: "cups": must be a standard resource for quota`}},
	})
	q := resourcetest.Object(t, resourceQuotas.Kind(), `spec: {hard: {cpu: "4", limits.cpu: "2"}}`).(*corev1.ResourceQuota)
	if got := warnResourceQuota(q, nil); len(got) != 1 || got[0] != "ResourceQuota cpu (4) should be less than limits.cpu (2)" {
		t.Errorf("warnings are %q", got)
	}
}

func TestLimitRangeRules(t *testing.T) {
	resourcetest.Rules(t, limitRanges, `
metadata: {name: limits, namespace: default}
spec: {limits: [{type: Container, max: {cpu: "2"}, min: {cpu: 100m}, default: {cpu: "1"}, defaultRequest: {cpu: 500m}, maxLimitRequestRatio: {cpu: "10"}}]}
`, []resourcetest.Rule{
		{Name: "a limit range is accepted"},
		{Name: "types are known, each once", Change: `spec: {limits: [{type: Cup}, {type: Pod}, {type: Pod}]}`, Want: []string{
			`spec.limits[0].type: Invalid value: "Cup": must be a standard limit type or fully qualified`, `spec.limits[2].type: Duplicate value: "Pod"`}},
		{Name: "containers use computing resources", Change: `spec: {limits: [{type: Container, max: {pods: "1"}, default: {}, defaultRequest: {pods: "1"}}]}`, Want: []string{
			`spec.limits[0].max[pods]: Invalid value: "pods": must be a standard resource for containers`,
			`spec.limits[0].default[pods]: Invalid value: "pods": must be a standard resource for containers`,
			`spec.limits[0].defaultRequest[pods]: Invalid value: "pods": must be a standard resource for containers`}},
		{Name: "pods have no defaults", Change: `spec: {limits: [{type: Pod, default: {cpu: "1"}, defaultRequest: {cpu: "1"}}]}`, Want: []string{
			"spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
			"spec.limits[0].defaultRequest: Forbidden: may not be specified when `type` is 'Pod'"}},
		{Name: "claims have a least or a most", Change: `spec: {limits: [{type: PersistentVolumeClaim}]}`, Want: []string{
			"spec.limits[0].limits: Required value: either minimum or maximum storage value is required, but neither was provided"}},
		{Name: "amounts are in order", Change: `spec: {limits: [{type: Container, max: {cpu: "1"}, min: {cpu: "2"}, default: {cpu: "3"}, defaultRequest: {cpu: "4"}}]}`, Want: []string{
			`spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1`,
			`spec.limits[0].defaultRequest[cpu]: Invalid value: "4": default request value 4 is greater than max value 1`,
			`spec.limits[0].defaultRequest[cpu]: Invalid value: "4": default request value 4 is greater than default limit value 3`,
			`spec.limits[0].default[cpu]: Invalid value: "1": default value 3 is greater than max value 1`}},
		{Name: "a ratio is possible", Change: `spec: {limits: [{type: Pod, max: {cpu: "2"}, min: {cpu: "1"}, maxLimitRequestRatio: {cpu: "3", memory: 500m}}]}`, Want: []string{
			`spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "3": ratio 3 is greater than max/min = 2.000000`,
			`spec.limits[0].maxLimitRequestRatio[memory]: Invalid value: "500m": ratio 500m is less than 1`}},
	})
}

func TestEndpointsRules(t *testing.T) {
	resourcetest.Rules(t, endpoints, `
metadata: {name: web, namespace: default}
subsets: [{addresses: [{ip: 10.0.0.1, nodeName: node-1}], ports: [{port: 80}]}]
`, []resourcetest.Rule{
		{Name: "endpoints are accepted"},
		{Name: "a subset has addresses", Change: `subsets: [{ports: [{port: 80}]}]`, Want: []string{"subsets[0]: Required value: must specify `addresses` or `notReadyAddresses`"}},
		{Name: "addresses can be reached", Change: `subsets: [{notReadyAddresses: [{ip: a}, {ip: 169.254.0.1}, {ip: "::"}]}]`, Want: []string{
			`subsets[0].notReadyAddresses[0].ip: Invalid value: "a": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`,
			`subsets[0].notReadyAddresses[1].ip: Invalid value: "169.254.0.1": may not be in the link-local range (169.254.0.0/16, fe80::/10)`,
			`subsets[0].notReadyAddresses[2].ip: Invalid value: "::": may not be unspecified (::)`}},
		{Name: "several ports have names", Change: `subsets: [{addresses: [{ip: 10.0.0.1}], ports: [{port: 80}, {port: 0, name: a, protocol: ICMP}]}]`, Want: []string{
			"subsets[0].ports[0].name: Required value", "subsets[0].ports[1].port: Invalid value: 0: must be between 1 and 65535, inclusive",
			`subsets[0].ports[1].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"`}},
	})
}
