package discovery

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	discoveryv1beta1 "k8s.io/api/discovery/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestDefaultsAndTables(t *testing.T) { resourcetest.Golden(t, Kinds()) }

func TestEndpointSlice(t *testing.T) {
	resourcetest.Rules(t, endpointSlices, `
metadata: {name: web-abc, namespace: default}
addressType: IPv4
ports: [{name: http, port: 80}, {port: 81}]
endpoints: [{addresses: [10.0.0.1], nodeName: node-1, hostname: web-0, hints: {forZones: [{name: a}]}}]
`, []resourcetest.Rule{
		{Name: "a slice is accepted"},
		{Name: "the address type is required", Change: `addressType: ""`, Want: []string{`addressType: Required value`}},
		{Name: "the address type is known", Change: `addressType: MAC`, Want: []string{`addressType: Unsupported value: "MAC": supported values: "FQDN", "IPv4", "IPv6"`}},
		{Name: "the address type is immutable", Update: true, Change: `{addressType: IPv6, endpoints: []}`,
			Want: []string{`addressType: Invalid value: "IPv6": field is immutable`}},
		{Name: "port names are unique and protocols known", Change: `ports: [{name: a}, {name: a, protocol: ICMP}]`, Want: []string{
			`ports[1].name: Duplicate value: "a"`,
			`ports[1].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"`}},
		{Name: "an endpoint has an address", Change: `endpoints: [{addresses: []}]`, Want: []string{`endpoints[0].addresses: Required value: must contain at least 1 address`}},
		{Name: "an address is of the type", Change: `endpoints: [{addresses: ["::2", x]}]`, Want: []string{
			`endpoints[0].addresses[0]: Invalid value: "::2": must be an IPv4 address`,
			`endpoints[0].addresses[1]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`}},
		{Name: "an address can be reached from elsewhere", Change: `endpoints: [{addresses: [127.0.0.1]}, {addresses: [169.254.0.1]}, {addresses: [0.0.0.0]}]`, Want: []string{
			`endpoints[0].addresses[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`,
			`endpoints[1].addresses[0]: Invalid value: "169.254.0.1": may not be in the link-local range (169.254.0.0/16, fe80::/10)`,
			`endpoints[2].addresses[0]: Invalid value: "0.0.0.0": may not be unspecified (0.0.0.0)`}},
		{Name: "a domain name is one", Change: `{addressType: FQDN, endpoints: [{addresses: [localhost]}]}`,
			Want: []string{`endpoints[0].addresses[0]: Invalid value: "localhost": should be a domain with at least two segments separated by dots`}},
		{Name: "hints are unique", Change: `endpoints: [{addresses: [10.0.0.1], hints: {forZones: [{name: a}, {name: a}]}}]`,
			Want: []string{`endpoints[0].hints.forZones[1].name: Duplicate value: "a"`}},
	})
}

func TestTopologyOfV1beta1(t *testing.T) {
	slice := func(topology map[string]string) *discoveryv1.EndpointSlice {
		var s discoveryv1.EndpointSlice
		if err := sliceFromV1beta1(&discoveryv1beta1.EndpointSlice{
			AddressType: discoveryv1beta1.AddressTypeIPv4,
			Endpoints:   []discoveryv1beta1.Endpoint{{Addresses: []string{"10.0.0.1"}, Topology: topology}},
		}, &s); err != nil {
			t.Fatal(err)
		}
		return &s
	}
	many := map[string]string{corev1.LabelTopologyZone: "z"}
	for i := range maxTopology {
		many[fmt.Sprint("k", i)] = ""
	}
	resourcetest.Errors(t, validateSlice(slice(many)))
	many["one-more"] = ""
	resourcetest.Errors(t, validateSlice(slice(many)), `endpoints[0].deprecatedTopology: Too many: 17: must have at most 16 items`)
	resourcetest.Errors(t, validateSlice(slice(map[string]string{"rack": "-"})),
		`endpoints[0].deprecatedTopology: Invalid value: "-": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`)
}

func TestThereAreLimits(t *testing.T) {
	s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: make([]discoveryv1.Endpoint, 1001)}
	resourcetest.Errors(t, validateSlice(s), `endpoints: Too many: 1001: must have at most 1000 items`)
}

func TestLabelsCountAsAGeneration(t *testing.T) {
	old := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Generation: 4, Labels: map[string]string{discoveryv1.LabelServiceName: "a"}}}
	for _, test := range []struct {
		rule       string
		service    string
		generation int64 // as the server has set it
		want       int64
	}{
		{"nothing changes", "a", 4, 4},
		{"the labels change", "b", 4, 5},
		{"the labels and something else change", "b", 5, 5},
	} {
		t.Run(test.rule, func(t *testing.T) {
			s := old.DeepCopy()
			s.Generation, s.Labels[discoveryv1.LabelServiceName] = test.generation, test.service
			prepareSliceUpdate(t.Context(), nil, s, old)
			if s.Generation != test.want {
				t.Errorf("generation %d, want %d", s.Generation, test.want)
			}
		})
	}
}
