package networking

import (
	"testing"

	"svc.dev/svc/apis/resource/resourcetest"
)

func TestDefaultsAndTables(t *testing.T) { resourcetest.Golden(t, Kinds()) }

const subdomain = `a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`

func TestIngress(t *testing.T) {
	resourcetest.Rules(t, ingresses, `
metadata: {name: web, namespace: default}
spec:
  ingressClassName: nginx
  tls: [{hosts: [example.com, "*.example.com"], secretName: web-tls}]
  rules:
  - host: "*.example.com"
    http:
      paths: [{path: /api, pathType: Prefix, backend: {service: {name: api, port: {number: 80}}}}]
`, []resourcetest.Rule{
		{Name: "an ingress is accepted"},
		{Name: "rules or a default backend are required", Change: `spec: {rules: null}`,
			Want: []string{"spec: Invalid value: null: either `defaultBackend` or `rules` must be specified"}},
		{Name: "a default backend is enough", Change: `spec: {rules: null, defaultBackend: {service: {name: api, port: {name: http}}}}`},
		{Name: "a host is a name", Change: `spec: {rules: [{host: 10.0.0.1}]}`,
			Want: []string{`spec.rules[0].host: Invalid value: "10.0.0.1": must be a DNS name, not an IP address`}},
		{Name: "a wildcard is the first label", Change: `spec: {rules: [{host: a.*.com}], tls: [{hosts: [A.com]}]}`, Want: []string{
			`spec.rules[0].host: Invalid value: "a.*.com": a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
			`spec.tls[0].hosts[0]: Invalid value: "A.com": ` + subdomain}},
		{Name: "http has paths", Change: `spec: {rules: [{http: {paths: []}}]}`, Want: []string{`spec.rules[0].http.paths: Required value`}},
		{Name: "a path has a type", Change: `spec: {rules: [{http: {paths: [{path: /, backend: {}}]}}]}`,
			Want: []string{`spec.rules[0].http.paths[0].pathType: Required value: pathType must be specified`}},
		{Name: "a path's type is known, and its backend is validated", Change: `spec: {rules: [{http: {paths: [{path: /, pathType: Regex, backend: {}}]}}]}`, Want: []string{
			`spec.rules[0].http.paths[0].pathType: Unsupported value: "Regex": supported values: "Exact", "ImplementationSpecific", "Prefix"`,
			`spec.rules[0].http.paths[0].backend: Invalid value: "": resource or service backend is required`}},
		{Name: "a path has one meaning", Change: `spec: {rules: [{http: {paths: [{path: a//b/., pathType: Exact, backend: {service: {name: api, port: {number: 80}}}}]}}]}`, Want: []string{
			`spec.rules[0].http.paths[0].path: Invalid value: "a//b/.": must be an absolute path`,
			`spec.rules[0].http.paths[0].path: Invalid value: "a//b/.": must not contain '//'`,
			`spec.rules[0].http.paths[0].path: Invalid value: "a//b/.": cannot end with '/.'`}},
		{Name: "an implementation's own path may be left out", Change: `spec: {rules: [{http: {paths: [{pathType: ImplementationSpecific, backend: {service: {name: api, port: {number: 80}}}}]}}]}`},
		{Name: "a backend is a service or a resource", Change: `spec: {defaultBackend: {service: {name: a, port: {number: 1}}, resource: {kind: Bucket, name: b}}}`,
			Want: []string{`spec.defaultBackend: Invalid value: "": cannot set both resource and service backends`}},
		{Name: "a service has a name and one port", Change: `spec: {defaultBackend: {service: {port: {name: http, number: 80}}}}`, Want: []string{
			`spec.defaultBackend.service.name: Required value`,
			`spec.defaultBackend: Invalid value: "": cannot set both port name & port number`}},
		{Name: "a port is required", Change: `spec: {defaultBackend: {service: {name: api}}}`,
			Want: []string{`spec.defaultBackend: Required value: port name or number is required`}},
		{Name: "a port is in range", Change: `spec: {defaultBackend: {service: {name: api, port: {number: 65536}}}}`,
			Want: []string{`spec.defaultBackend.service.port.number: Invalid value: 65536: must be between 1 and 65535, inclusive`}},
		{Name: "a resource has a kind and a name", Change: `spec: {defaultBackend: {resource: {kind: "", name: ""}}}`, Want: []string{
			`spec.defaultBackend.resource.kind: Required value`, `spec.defaultBackend.resource.name: Required value`}},
		{Name: "the old annotation agrees with the class on create", Change: `metadata: {annotations: {kubernetes.io/ingress.class: other}}`,
			Want: []string{"annotations.kubernetes.io/ingress.class: Invalid value: \"other\": must match `ingressClassName` when both are specified"}},
		{Name: "status addresses are addresses and names", Status: true, Change: `status: {loadBalancer: {ingress: [{ip: x}, {hostname: 1.2.3.4}]}}`, Want: []string{
			`status.loadBalancer.ingress[0].ip: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`,
			`status.loadBalancer.ingress[1].hostname: Invalid value: "1.2.3.4": must be a DNS name, not an IP address`}},
	})
}

func TestOlderVersionsOfIngressAcceptMore(t *testing.T) {
	k := ingresses.Kind()
	const base = `{metadata: {name: web, namespace: default}, spec: {rules: [{host: a.example.com}]}}`
	const wildcard, secret = `spec: {rules: [{host: "*.example.com", http: {paths: [{pathType: ImplementationSpecific, path: a, backend: {}}]}}]}`, `spec: {tls: [{secretName: a_b}]}`
	const host, named = `spec: {rules: [{host: "a.*"}]}`, `spec: {rules: [{host: a.example.com, http: {paths: []}}]}`
	for _, test := range []struct {
		change, was string // {} of an object that is created
		older, v1   int    // errors
	}{
		{wildcard, "{}", 0, 2}, {secret, "{}", 0, 1}, {host, "{}", 1, 1}, {named, "{}", 1, 1},
		{wildcard, wildcard, 0, 0}, {secret, secret, 0, 0}, {secret, wildcard, 0, 1}, {wildcard, secret, 0, 2},
	} {
		obj, old := resourcetest.Object(t, k, base, test.change), resourcetest.Object(t, k, base, test.was)
		v1 := k.ValidateUpdate(obj, old)
		if test.was == "{}" {
			v1 = k.ValidateCreate(obj)
		}
		if len(v1) != test.v1 {
			t.Errorf("v1, %s of %s: %v", test.change, test.was, v1)
		}
		if errs := validateIngressV1beta1(obj, old); len(errs) != test.older {
			t.Errorf("v1beta1, %s of %s: %v", test.change, test.was, errs)
		}
	}
}

func TestIngressClass(t *testing.T) {
	resourcetest.Rules(t, ingressClasses, `
metadata: {name: nginx}
spec: {controller: example.com/nginx, parameters: {kind: Settings, name: fast}}
`, []resourcetest.Rule{
		{Name: "a class is accepted"},
		{Name: "the controller is a path below a domain", Change: `spec: {controller: nginx}`,
			Want: []string{`spec.controller: Invalid value: "nginx": must be a domain-prefixed path (such as "acme.io/foo")`}},
		{Name: "the controller is immutable", Update: true, Change: `spec: {controller: example.com/other}`,
			Want: []string{`spec.controller: Invalid value: "example.com/other": field is immutable`}},
		{Name: "parameters in a namespace name it", Change: `spec: {parameters: {scope: Namespace}}`,
			Want: []string{"spec.parameters.namespace: Required value: `parameters.scope` is set to 'Namespace'"}},
		{Name: "parameters of the cluster have no namespace", Change: `spec: {parameters: {namespace: a}}`,
			Want: []string{"spec.parameters.namespace: Forbidden: `parameters.scope` is set to 'Cluster'"}},
		{Name: "the scope is known", Change: `spec: {parameters: {scope: Galaxy}}`,
			Want: []string{`spec.parameters.scope: Unsupported value: "Galaxy": supported values: "Cluster", "Namespace"`}},
	})
}

func TestNetworkPolicy(t *testing.T) {
	resourcetest.Rules(t, networkPolicies, `
metadata: {name: web, namespace: default}
spec:
  podSelector: {matchLabels: {app: web}}
  ingress:
  - from: [{namespaceSelector: {}, podSelector: {}}]
    ports: [{port: 80}, {port: http}, {port: 8000, endPort: 9000}]
  egress:
  - to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}]
`, []resourcetest.Rule{
		{Name: "a policy is accepted"},
		{Name: "a peer says who", Change: `spec: {ingress: [{from: [{}]}]}`, Want: []string{`spec.ingress[0].from[0]: Required value: must specify a peer`}},
		{Name: "a block stands alone", Change: `spec: {egress: [{to: [{podSelector: {}, ipBlock: {cidr: 10.0.0.0/8}}]}]}`,
			Want: []string{`spec.egress[0].to[0]: Forbidden: may not specify both ipBlock and another peer`}},
		{Name: "a block is a range", Change: `spec: {egress: [{to: [{ipBlock: {cidr: 10.0.0.1/8}}, {ipBlock: {}}]}]}`, Want: []string{
			`spec.egress[0].to[0].ipBlock.cidr: Invalid value: "10.0.0.1/8": must not have bits set beyond the prefix length`,
			`spec.egress[0].to[1].ipBlock.cidr: Required value`}},
		{Name: "exceptions lie within", Change: `spec: {egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [11.0.0.0/16, 10.0.0.0/8, x]}}]}]}`, Want: []string{
			"spec.egress[0].to[0].ipBlock.except[0]: Invalid value: \"11.0.0.0/16\": must be a strict subset of `cidr`",
			"spec.egress[0].to[0].ipBlock.except[1]: Invalid value: \"10.0.0.0/8\": must be a strict subset of `cidr`",
			`spec.egress[0].to[0].ipBlock.except[2]: Invalid value: "x": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)`}},
		{Name: "ports are in range and order", Change: `spec: {ingress: [{ports: [{port: 0}, {port: 9, endPort: 8}, {port: a_b}, {endPort: 5}, {port: x, endPort: 5}, {protocol: ICMP}]}]}`, Want: []string{
			`spec.ingress[0].ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive`,
			"spec.ingress[0].ports[1].endPort: Invalid value: 9: must be greater than or equal to `port`",
			`spec.ingress[0].ports[2].port: Invalid value: "a_b": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)`,
			"spec.ingress[0].ports[3].endPort: Invalid value: 5: may not be specified when `port` is not specified",
			"spec.ingress[0].ports[4].endPort: Invalid value: 5: may not be specified when `port` is non-numeric",
			`spec.ingress[0].ports[5].protocol: Unsupported value: "ICMP": supported values: "TCP", "UDP", "SCTP"`}},
		{Name: "policy types are known", Change: `spec: {policyTypes: [Transit]}`,
			Want: []string{`spec.policyTypes[0]: Unsupported value: "Transit": supported values: "Ingress", "Egress"`}},
	})
}

func TestServiceCIDR(t *testing.T) {
	resourcetest.Rules(t, serviceCIDRs, `
metadata: {name: extra}
spec: {cidrs: [10.9.0.0/16]}
`, []resourcetest.Rule{
		{Name: "a range is accepted"},
		{Name: "a range is required", Change: `spec: {cidrs: []}`, Want: []string{`spec.cidrs: Required value: at least one CIDR required`}},
		{Name: "each family has one range", Change: `spec: {cidrs: [10.9.0.0/16, 10.8.0.0/16]}`, Want: []string{
			`spec.cidrs: Invalid value: ["10.9.0.0/16","10.8.0.0/16"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64`}},
		{Name: "a range of the other family may be added", Update: true, Change: `spec: {cidrs: [10.9.0.0/16, "fd00::/64"]}`},
		{Name: "a range that is added is valid", Update: true, Change: `spec: {cidrs: [10.9.0.0/16, 10.8.0.0/16]}`, Want: []string{
			`spec.cidrs: Invalid value: ["10.9.0.0/16","10.8.0.0/16"]: may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64`}},
		{Name: "ranges are immutable", Update: true, Change: `spec: {cidrs: [10.8.0.0/16]}`, Want: []string{`spec.cidrs[0]: Invalid value: "10.8.0.0/16": field is immutable`}},
	})
}

func TestIPAddress(t *testing.T) {
	resourcetest.Rules(t, ipAddresses, `
metadata: {name: 10.0.0.1}
spec: {parentRef: {resource: services, namespace: default, name: web}}
`, []resourcetest.Rule{
		{Name: "an address is accepted"},
		{Name: "the name is an address", Change: `metadata: {name: web}`,
			Want: []string{`metadata.name: Invalid value: "web": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)`}},
		{Name: "the name is canonical", Change: `metadata: {name: "2001:DB8::1"}`,
			Want: []string{`metadata.name: Invalid value: "2001:DB8::1": must be in canonical form ("2001:db8::1")`}},
		{Name: "the parent is required", Change: `spec: {parentRef: null}`, Want: []string{`spec.parentRef: Required value`}},
		{Name: "the parent has a resource and a name", Change: `spec: {parentRef: {resource: "", name: ""}}`,
			Want: []string{`spec.parentRef.resource: Required value`, `spec.parentRef.name: Required value`}},
		{Name: "the parent is immutable", Update: true, Change: `spec: {parentRef: {name: db}}`,
			Want: []string{`spec.parentRef: Invalid value: {"resource":"services","namespace":"default","name":"db"}: field is immutable`}},
	})
}
