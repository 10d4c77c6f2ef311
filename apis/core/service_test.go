package core

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"svc.dev/svc/apis/resource/resourcetest"
)

const webService = `
metadata: {name: web, namespace: default}
spec:
  selector: {app: web}
  ports: [{port: 80}]
`

func TestTypesAndPortsOfServices(t *testing.T) {
	resourcetest.Rules(t, services, webService, []resourcetest.Rule{
		{Name: "a service is accepted"},
		{Name: "a name may begin with a digit", Change: `metadata: {name: 1web}`},
		{Name: "ports are required", Change: `spec: {ports: null}`, Want: []string{"spec.ports: Required value"}},
		{Name: "unless it is headless", Change: `spec: {ports: null, clusterIP: None}`},
		{Name: "a node port service has an address", Change: `spec: {type: NodePort, clusterIP: None}`,
			Want: []string{`spec.clusterIPs[0]: Invalid value: "None": may not be set to 'None' for NodePort services`}},
		{Name: "the type is known", Change: `spec: {type: Other}`, Want: []string{
			`spec.type: Unsupported value: "Other": supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"`}},
		{Name: "an external name is a name", Change: `spec: {type: ExternalName}`, Want: []string{"spec.externalName: Required value"}},
		{Name: "an external name has no addresses", Change: `spec: {type: ExternalName, externalName: example.com., clusterIP: 10.0.0.1, ipFamilies: [IPv4], ipFamilyPolicy: SingleStack}`, Want: []string{
			"spec.clusterIPs: Forbidden: may not be set for ExternalName services",
			"spec.ipFamilies: Forbidden: may not be set for ExternalName services",
			"spec.ipFamilyPolicy: Forbidden: may not be set for ExternalName services"}},
		{Name: "several ports have names, each its own", Change: `spec: {ports: [{port: 80}, {port: 81, name: a}, {port: 82, name: a}]}`, Want: []string{
			"spec.ports[0].name: Required value", `spec.ports[2].name: Duplicate value: "a"`}},
		{Name: "a port is served once", Change: `spec: {ports: [{port: 80, name: a}, {port: 80, name: b}]}`, Want: []string{
			`spec.ports[1]: Duplicate value: {"protocol":"TCP","port":80,"targetPort":0}`}},
		{Name: "ports and protocols exist", Change: `spec: {ports: [{port: 0, protocol: ICMP, targetPort: UPPER}]}`, Want: []string{
			"spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
			`spec.ports[0].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"`,
			`spec.ports[0].targetPort: Invalid value: "UPPER": must contain at least one letter (a-z)`,
			`spec.ports[0].targetPort: Invalid value: "UPPER": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)`}},
		{Name: "only services of two types have node ports", Change: `spec: {ports: [{port: 80, nodePort: 30080}]}`, Want: []string{
			"spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'"}},
		{Name: "a node port serves one port of a protocol", Change: `spec: {type: NodePort, ports: [{port: 80, name: a, nodePort: 30080}, {port: 81, name: b, nodePort: 30080}, {port: 81, name: c, protocol: UDP, nodePort: 30080}]}`,
			Want: []string{"spec.ports[1].nodePort: Duplicate value: 30080"}},
		{Name: "affinity is known", Change: `spec: {sessionAffinity: Cookie}`, Want: []string{
			`spec.sessionAffinity: Unsupported value: "Cookie": supported values: "ClientIP", "None"`}},
		{Name: "affinity ends within a day", Change: `spec: {sessionAffinity: ClientIP, sessionAffinityConfig: {clientIP: {timeoutSeconds: 86401}}}`, Want: []string{
			"spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must be greater than 0 and less than 86400"}},
	})
}

func TestAddressesOfServices(t *testing.T) {
	resourcetest.Rules(t, services, webService, []resourcetest.Rule{
		{Name: "addresses are addresses", Change: `spec: {clusterIP: 10.0.0, externalIPs: [10.0.0.1.1, 127.0.0.1]}`, Want: []string{
			`spec.clusterIPs[0]: Invalid value: "10.0.0": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`,
			`spec.externalIPs[0]: Invalid value: "10.0.0.1.1": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`,
			`spec.externalIPs[1]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)`}},
		{Name: "clusterIP is the first of clusterIPs", Change: `spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.2]}`, Want: []string{
			"spec.clusterIPs: Invalid value: [\"10.0.0.2\"]: first value must match `clusterIP`"}},
		{Name: "clusterIPs come with clusterIP", Change: `spec: {clusterIPs: [10.0.0.2]}`, Want: []string{
			"spec.clusterIPs: Invalid value: [\"10.0.0.2\"]: must be empty when `clusterIP` is not specified"}},
		{Name: "there is one address of each family", Change: `spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1, 10.0.0.2]}`, Want: []string{
			`spec.clusterIPs: Invalid value: ["10.0.0.1","10.0.0.2"]: may specify no more than one IP for each IP family`}},
		{Name: "an address is of its family", Change: `spec: {clusterIP: 10.0.0.1, ipFamilies: [IPv6]}`, Want: []string{
			"spec.clusterIPs[0]: Invalid value: \"10.0.0.1\": expected an IPv6 value as indicated by `ipFamilies[0]`"}},
		{Name: "families and policies are known", Change: `spec: {ipFamilies: [IPv5, IPv4, IPv4], ipFamilyPolicy: TripleStack}`, Want: []string{
			`spec.ipFamilies[0]: Unsupported value: "IPv5": supported values: "IPv4", "IPv6"`, `spec.ipFamilies[2]: Duplicate value: "IPv4"`,
			`spec.ipFamilyPolicy: Unsupported value: "TripleStack": supported values: "PreferDualStack", "RequireDualStack", "SingleStack"`}},
		{Name: "there are two addresses at most, whatever they are", Change: `spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1, a, "::1"]}`, Want: []string{
			`spec.clusterIPs[1]: Invalid value: "a": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`,
			`spec.clusterIPs: Invalid value: ["10.0.0.1","a","::1"]: may only hold up to 2 values`}},
	})
}

func TestLoadBalancersAndTrafficPoliciesOfServices(t *testing.T) {
	resourcetest.Rules(t, services, webService, []resourcetest.Rule{
		{Name: "only load balancers have their fields", Change: `spec: {loadBalancerSourceRanges: [10.0.0.0/8], loadBalancerClass: a/b, allocateLoadBalancerNodePorts: true}`, Want: []string{
			"spec.LoadBalancerSourceRanges: Forbidden: may only be used when `type` is 'LoadBalancer'",
			"spec.loadBalancerClass: Forbidden: may only be used when `type` is 'LoadBalancer'",
			"spec.allocateLoadBalancerNodePorts: Forbidden: may only be used when `type` is 'LoadBalancer'"}},
		{Name: "source ranges are ranges", Change: `spec: {type: LoadBalancer, loadBalancerSourceRanges: [" 10.0.0.0/8 ", 10.0.0.1]}`, Want: []string{
			`spec.LoadBalancerSourceRanges[1]: Invalid value: "10.0.0.1": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)`}},
		{Name: "external traffic policy is for the outside", Change: `spec: {externalTrafficPolicy: Local}`, Want: []string{
			`spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services`}},
		{Name: "traffic policies are known", Change: `spec: {type: NodePort, externalTrafficPolicy: Near, internalTrafficPolicy: Near, trafficDistribution: Near}`, Want: []string{
			`spec.externalTrafficPolicy: Unsupported value: "Near": supported values: "Cluster", "Local"`,
			`spec.internalTrafficPolicy: Unsupported value: "Near": supported values: "Cluster", "Local"`,
			`spec.trafficDistribution: Unsupported value: "Near": supported values: "PreferClose", "PreferSameZone", "PreferSameNode"`}},
		{Name: "health checks are for local traffic", Change: `spec: {type: LoadBalancer, healthCheckNodePort: 30001}`, Want: []string{
			"spec.healthCheckNodePort: Invalid value: 30001: may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"}},
	})
}

func TestUpdatesOfServices(t *testing.T) {
	resourcetest.Rules(t, services, webService, []resourcetest.Rule{
		{Name: "an address stays", Update: true, Change: `spec: {clusterIP: 10.0.0.2, clusterIPs: [10.0.0.2]}`, Was: `spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1]}`,
			Want: []string{`spec.clusterIPs[0]: Invalid value: ["10.0.0.2"]: may not change once set`}},
		{Name: "and what is none is called so only", Update: true, Change: `spec: {clusterIP: a, clusterIPs: [a]}`, Was: `spec: {clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1]}`,
			Want: []string{`spec.clusterIPs[0]: Invalid value: "a": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`}},
		{Name: "the class of a load balancer stays", Update: true, Change: `spec: {type: LoadBalancer, loadBalancerClass: a/c}`, Was: `spec: {type: LoadBalancer, loadBalancerClass: a/b}`,
			Want: []string{`spec.loadBalancerClass: Invalid value: "a/c": may not change once set`}},
		{Name: "the port of health checks stays", Update: true, Change: `spec: {type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 30002}`,
			Was:  `spec: {type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 30001}`,
			Want: []string{"spec.healthCheckNodePort: Forbidden: field is immutable"}},
		{Name: "a load balancer becomes a plain service, and sheds what it was", Update: true,
			Was: `spec: {type: LoadBalancer, loadBalancerClass: a/b, externalTrafficPolicy: Local, healthCheckNodePort: 30001, ports: [{port: 80, nodePort: 30080}]}`,
			Change: `spec: {type: ClusterIP, loadBalancerClass: a/b, externalTrafficPolicy: Local, healthCheckNodePort: 30001, allocateLoadBalancerNodePorts: true,
				ports: [{port: 80, nodePort: 30080}]}`},
		{Name: "but not what is changed at the same time", Update: true,
			Was:    `spec: {type: NodePort, ports: [{port: 80, nodePort: 30080}]}`,
			Change: `spec: {ports: [{port: 80, nodePort: 30081}], externalTrafficPolicy: Local}`,
			Want: []string{"spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
				`spec.externalTrafficPolicy: Invalid value: "Local": may only be set for externally-accessible services`}},
	})
}

func TestStatusOfServices(t *testing.T) {
	resourcetest.Rules(t, services, webService, []resourcetest.Rule{
		{Name: "load balancers have ingress points", Status: true, Change: `status: {loadBalancer: {ingress: [{ip: 10.0.0.1}]}}`, Want: []string{
			"status.loadBalancer.ingress: Forbidden: may only be used when `spec.type` is 'LoadBalancer'"}},
		{Name: "which are addresses or names", Status: true,
			Change: `{spec: {type: LoadBalancer}, status: {loadBalancer: {ingress: [{ip: a}, {hostname: 10.0.0.1}, {hostname: a, ipMode: VIP}, {ip: 10.0.0.1, ipMode: Other}, {hostname: 010.0.0.1}]}}}`, Want: []string{
				`status.loadBalancer.ingress[0].ip: Invalid value: "a": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`,
				`status.loadBalancer.ingress[1].hostname: Invalid value: "10.0.0.1": must be a DNS name, not an IP address`,
				"status.loadBalancer.ingress[2].ipMode: Forbidden: may not be specified when `ip` is not set",
				`status.loadBalancer.ingress[3].ipMode: Unsupported value: "Other": supported values: "Proxy", "VIP"`,
				`status.loadBalancer.ingress[4].hostname: Invalid value: "010.0.0.1": must be a DNS name, not an IP address`}},
	})
}

func TestServiceKeepsWhatTheServerAllocated(t *testing.T) {
	k := services.Kind()
	old := resourcetest.Object(t, k, webService, `spec: {type: NodePort, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ports: [
		{name: http, port: 80, nodePort: 30080}, {name: https, port: 443, nodePort: 30443}]}`).(*corev1.Service)
	s := resourcetest.Object(t, k, webService, `spec: {type: NodePort, ports: [
		{name: http, port: 8080}, {name: https, port: 443, nodePort: 30080}, {name: new, port: 1}]}`).(*corev1.Service)
	prepareServiceUpdate(t.Context(), nil, s, old)
	if s.Spec.ClusterIP != "10.0.0.1" || !slices.Equal(s.Spec.ClusterIPs, []string{"10.0.0.1"}) {
		t.Errorf("addresses are %q and %q", s.Spec.ClusterIP, s.Spec.ClusterIPs)
	}
	if got := nodePortsOf(s); !slices.Equal(got, []int32{30080}) {
		t.Errorf("node ports are %v: http's belongs to https now, and new has none yet", got)
	}
}

func TestServiceWarnsOfWhatIsInVain(t *testing.T) {
	for change, want := range map[string]string{
		`spec: {clusterIP: None, clusterIPs: [None], externalIPs: [192.0.2.1]}`:       "spec.externalIPs is ignored for headless services",
		`spec: {externalName: example.com}`:                                           `spec.externalName is ignored when spec.type is not "ExternalName"`,
		`spec: {type: LoadBalancer, loadBalancerSourceRanges: [10.0.0.1/8]}`:          "spec.loadBalancerSourceRanges[0]: CIDR value \"10.0.0.1/8\" is ambiguous",
		`metadata: {annotations: {service.kubernetes.io/topology-aware-hints: auto}}`: "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead",
	} {
		got := strings.Join(warnService(resourcetest.Object(t, services.Kind(), webService, change).(*corev1.Service), nil), "\n")
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s: warnings are %q, want %q", change, got, want)
		}
	}
}
