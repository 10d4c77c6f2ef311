package spec

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

// removedVersion is an object of a row of document 2, section 9, removed versions.
type removedVersion struct {
	// release is the minor release that removed the version.
	release int
	// path is the collection's path in the removed version, successor in the one that
	// replaces it; empty where nothing does.
	path, successor string
	// instead is the version that the refusal names if it is not the successor's.
	instead string
	// warning is that of requests to the removed version.
	warning string
	// body is the object, named n, without its apiVersion and kind.
	body string
	// becomes are the fields of the object in the successor, by paths with dots and
	// indexes; stays those that the removed version returns.
	becomes, stays map[string]any
	// refused is what the successor says of such an object when it is created there; empty
	// if it accepts it.
	refused string
	// unwritable removes from such an object what clients of the successor cannot write.
	unwritable func(obj object)
	// name is the object's name if it must be a certain one.
	name string
	// posted is true if the type is not stored.
	posted bool
}

const (
	rbacPath, storagePath, flowcontrolPath   = "/apis/rbac.authorization.k8s.io/", "/apis/storage.k8s.io/", "/apis/flowcontrol.apiserver.k8s.io/"
	admissionPath, authorizationPath, nsPath = "/apis/admissionregistration.k8s.io/", "/apis/authorization.k8s.io/", "/namespaces/default/"

	group22      = "is deprecated in v1.19+, unavailable in v1.22+"
	role         = `"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}]`
	bound        = `"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"n"},"subjects":[{"kind":"User","name":"u"}]`
	ingressRules = `"rules":[{"http":{"paths":[{"path":"/","backend":{"serviceName":"s","servicePort":"web"}}]}}]`
	hpa          = `"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"},"maxReplicas":3`
	flow         = `"spec":{"type":"Limited","limited":{"assuredConcurrencyShares":7,"limitResponse":{"type":"Queue","queuing":{"queues":8,"handSize":2,"queueLengthLimit":9}}}}`
	flowSpec     = `"spec":{"priorityLevelConfiguration":{"name":"global-default"},"matchingPrecedence":9,"distinguisherMethod":{"type":"ByUser"},"rules":[{"subjects":[{"kind":"User","user":{"name":"u"}}],"nonResourceRules":[{"verbs":["get"],"nonResourceURLs":["/x"]}]}]}`
	webhooks     = `"webhooks":[{"name":"a.example.com","clientConfig":{"url":"https://localhost:1"},"sideEffects":"Some","rules":[{"operations":["CREATE"],"apiGroups":["example.com"],"apiVersions":["v1"],"resources":["things"],"scope":"Namespaced"}],` +
		`"namespaceSelector":{"matchLabels":{"a":"b"}},"objectSelector":{"matchLabels":{"c":"d"}}}]`
	webhooksRefused = `webhooks[0].sideEffects: Unsupported value: \"Some\": supported values: \"None\", \"NoneOnDryRun\"`
	oldDefinition   = `"spec":{"group":"example.com","version":"v1","names":{"plural":"olds","kind":"Old","shortNames":["ol"]},"subresources":{"status":{},"scale":{"specReplicasPath":".spec.n","statusReplicasPath":".status.n"}},` +
		`"validation":{"openAPIV3Schema":{"properties":{"a":{"type":"string"}}}},"additionalPrinterColumns":[{"name":"A","type":"string","JSONPath":".a"}]}`
)

func ingressBecomes() map[string]any {
	return map[string]any{
		"spec.defaultBackend.service.name": "d", "spec.defaultBackend.service.port.number": 80.0,
		"spec.rules.0.http.paths.0.backend.service.port.name": "web", "spec.rules.0.http.paths.0.pathType": "ImplementationSpecific",
	}
}

func webhookBecomes() map[string]any {
	return map[string]any{
		"webhooks.0.failurePolicy": "Ignore", "webhooks.0.matchPolicy": "Exact", "webhooks.0.timeoutSeconds": 30.0, "webhooks.0.sideEffects": "Some",
		"webhooks.0.admissionReviewVersions.0": "v1beta1",
	}
}

// removedVersions are the rows of the releases after 1.16, by release.
func removedVersions() []removedVersion {
	return slices.Concat(
		objectsRemovedIn22(), reviewsRemovedIn22(), policiesRemovedIn22(), removedIn25(),
		removedIn26And27(), flowControlRemovedIn(29, "v1beta2", "is deprecated in v1.26+, unavailable in v1.29+", "v1beta3", "v1", "nominalConcurrencyShares"))
}

// objectsRemovedIn22 are the rows of objects that extend or configure the server, and of ingresses.
func objectsRemovedIn22() []removedVersion {
	return []removedVersion{
		{release: 22, path: admissionPath + "v1beta1/mutatingwebhookconfigurations", successor: admissionPath + "v1/mutatingwebhookconfigurations", body: webhooks, refused: webhooksRefused, becomes: webhookBecomes(),
			warning: "MutatingWebhookConfiguration is deprecated in v1.16+, unavailable in v1.22+; use admissionregistration.k8s.io/v1 MutatingWebhookConfiguration"},
		{release: 22, path: admissionPath + "v1beta1/validatingwebhookconfigurations", successor: admissionPath + "v1/validatingwebhookconfigurations", body: webhooks, refused: webhooksRefused, becomes: webhookBecomes(),
			warning: "ValidatingWebhookConfiguration is deprecated in v1.16+, unavailable in v1.22+; use admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration"},
		{release: 22, path: "/apis/apiextensions.k8s.io/v1beta1/customresourcedefinitions", successor: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
			name: "olds.example.com", body: oldDefinition, refused: `spec.preserveUnknownFields: Invalid value: true: cannot set to true`,
			becomes: map[string]any{
				"spec.scope": "Namespaced", "spec.preserveUnknownFields": true, "spec.versions.0.name": "v1", "spec.versions.0.additionalPrinterColumns.0.jsonPath": ".a", "spec.conversion.strategy": "None",
				"spec.versions.0.schema.openAPIV3Schema.properties.a.type": "string", "spec.versions.0.subresources.scale.specReplicasPath": ".spec.n", "spec.version": nil, "spec.validation": nil,
			},
			stays:   map[string]any{"spec.version": "v1", "spec.additionalPrinterColumns.0.JSONPath": ".a", "spec.subresources.scale.statusReplicasPath": ".status.n", "spec.validation.openAPIV3Schema.properties.a.type": "string"},
			warning: "CustomResourceDefinition is deprecated in v1.16+, unavailable in v1.22+; use apiextensions.k8s.io/v1 CustomResourceDefinition"},
		{release: 22, path: "/apis/apiregistration.k8s.io/v1beta1/apiservices", successor: "/apis/apiregistration.k8s.io/v1/apiservices",
			name: "v9.old.example.com", body: `"spec":{"group":"old.example.com","version":"v9","groupPriorityMinimum":1,"versionPriority":1,"insecureSkipTLSVerify":true,"service":{"name":"s","namespace":"default"}}`,
			warning: "APIService " + group22 + "; use apiregistration.k8s.io/v1 APIService"},
		{release: 22, path: "/apis/certificates.k8s.io/v1beta1/certificatesigningrequests", successor: "/apis/certificates.k8s.io/v1/certificatesigningrequests",
			body: `"spec":{"request":"` + certificateRequest() + `","usages":["digital signature","digital signature","fun"]}`, warning: "CertificateSigningRequest " + group22 + "; use certificates.k8s.io/v1 CertificateSigningRequest",
			becomes: map[string]any{"spec.signerName": "kubernetes.io/legacy-unknown", "spec.usages.1": "digital signature", "spec.usages.2": "fun"},
			refused: `spec.usages[1]: Duplicate value: \"digital signature\", spec.usages[2]: Unsupported value: \"fun\"`},
		alike(22, "/apis/coordination.k8s.io/%s"+nsPath+"leases", "v1beta1", "v1", "Lease "+group22+"; use coordination.k8s.io/v1 Lease", `"spec":{"holderIdentity":"h","leaseDurationSeconds":40,"acquireTime":"2024-01-01T00:00:00.000001Z","renewTime":"2024-01-01T00:00:01.000002Z","leaseTransitions":2}`),
		{release: 22, path: "/apis/extensions/v1beta1" + nsPath + "ingresses", successor: "/apis/networking.k8s.io/v1" + nsPath + "ingresses",
			body: `"spec":{"backend":{"serviceName":"d","servicePort":80},` + ingressRules + `}`, becomes: ingressBecomes(), stays: map[string]any{"spec.backend.servicePort": 80.0},
			warning: "Ingress is deprecated in v1.14+, unavailable in v1.22+; use networking.k8s.io/v1 Ingress"},
		{release: 22, path: "/apis/networking.k8s.io/v1beta1" + nsPath + "ingresses", successor: "/apis/networking.k8s.io/v1" + nsPath + "ingresses",
			body: `"spec":{"backend":{"serviceName":"d","servicePort":80},` + ingressRules + `}`, becomes: ingressBecomes(), stays: map[string]any{"spec.backend.servicePort": 80.0},
			warning: "Ingress " + group22 + "; use networking.k8s.io/v1 Ingress"},
		alike(22, "/apis/networking.k8s.io/%s/ingressclasses", "v1beta1", "v1", "IngressClass "+group22+"; use networking.k8s.io/v1 IngressClass", `"spec":{"controller":"example.com/c","parameters":{"apiGroup":"example.com","kind":"Settings","name":"s"}}`),
	}
}

// reviewsRemovedIn22 are the rows of types that are not stored.
func reviewsRemovedIn22() []removedVersion {
	return []removedVersion{
		{release: 22, path: "/apis/authentication.k8s.io/v1beta1/tokenreviews", successor: "/apis/authentication.k8s.io/v1/tokenreviews", posted: true,
			body: `"spec":{"token":"t"}`, warning: "TokenReview " + group22 + "; use authentication.k8s.io/v1 TokenReview"},
		{release: 22, path: authorizationPath + "v1beta1/subjectaccessreviews", successor: authorizationPath + "v1/subjectaccessreviews", posted: true,
			body:    `"spec":{"user":"u","group":["system:masters"],"resourceAttributes":{"verb":"get","resource":"pods"}}`,
			warning: "SubjectAccessReview " + group22 + "; use authorization.k8s.io/v1 SubjectAccessReview", stays: map[string]any{"status.allowed": true}},
		{release: 22, path: authorizationPath + "v1beta1/selfsubjectaccessreviews", successor: authorizationPath + "v1/selfsubjectaccessreviews", posted: true,
			body:    `"spec":{"resourceAttributes":{"verb":"get","resource":"pods"}}`,
			warning: "SelfSubjectAccessReview " + group22 + "; use authorization.k8s.io/v1 SelfSubjectAccessReview", stays: map[string]any{"status.allowed": true}},
		{release: 22, path: authorizationPath + "v1beta1" + nsPath + "localsubjectaccessreviews", successor: authorizationPath + "v1" + nsPath + "localsubjectaccessreviews", posted: true,
			body:    `"spec":{"user":"u","group":["system:masters"],"resourceAttributes":{"verb":"get","resource":"pods","namespace":"default"}}`,
			warning: "LocalSubjectAccessReview " + group22 + "; use authorization.k8s.io/v1 LocalSubjectAccessReview", stays: map[string]any{"status.allowed": true}},
		{release: 22, path: authorizationPath + "v1beta1/selfsubjectrulesreviews", successor: authorizationPath + "v1/selfsubjectrulesreviews", posted: true,
			body: `"spec":{"namespace":"default"}`, warning: "SelfSubjectRulesReview " + group22 + "; use authorization.k8s.io/v1 SelfSubjectRulesReview"},
	}
}

// policiesRemovedIn22 are the rows of access, priorities and storage.
func policiesRemovedIn22() []removedVersion {
	return []removedVersion{
		alike(22, rbacPath+"%s/clusterroles", "v1beta1", "v1", "ClusterRole is deprecated in v1.17+, unavailable in v1.22+; use rbac.authorization.k8s.io/v1 ClusterRole", role),
		alike(22, rbacPath+"%s/clusterrolebindings", "v1beta1", "v1", "ClusterRoleBinding is deprecated in v1.17+, unavailable in v1.22+; use rbac.authorization.k8s.io/v1 ClusterRoleBinding", bound),
		alike(22, rbacPath+"%s"+nsPath+"roles", "v1beta1", "v1", "Role is deprecated in v1.17+, unavailable in v1.22+; use rbac.authorization.k8s.io/v1 Role", role),
		alike(22, rbacPath+"%s"+nsPath+"rolebindings", "v1beta1", "v1", "RoleBinding is deprecated in v1.17+, unavailable in v1.22+; use rbac.authorization.k8s.io/v1 RoleBinding", bound),
		alike(22, "/apis/scheduling.k8s.io/%s/priorityclasses", "v1beta1", "v1", "PriorityClass is deprecated in v1.14+, unavailable in v1.22+; use scheduling.k8s.io/v1 PriorityClass", `"value":5,"globalDefault":false,"description":"d","preemptionPolicy":"Never"`),
		alike(22, storagePath+"%s/csidrivers", "v1beta1", "v1", "CSIDriver "+group22+"; use storage.k8s.io/v1 CSIDriver", `"spec":{"attachRequired":false,"podInfoOnMount":true,"volumeLifecycleModes":["Ephemeral"],"fsGroupPolicy":"File","storageCapacity":true}`),
		alike(22, storagePath+"%s/csinodes", "v1beta1", "v1", "CSINode is deprecated in v1.17+, unavailable in v1.22+; use storage.k8s.io/v1 CSINode", `"spec":{"drivers":[{"name":"d.example.com","nodeID":"n","topologyKeys":["rack"],"allocatable":{"count":3}}]}`),
		alike(22, storagePath+"%s/storageclasses", "v1beta1", "v1", "StorageClass "+group22+"; use storage.k8s.io/v1 StorageClass", `"provisioner":"p","parameters":{"a":"b"},"reclaimPolicy":"Retain","mountOptions":["ro"],"allowVolumeExpansion":true,"volumeBindingMode":"WaitForFirstConsumer","allowedTopologies":[{"matchLabelExpressions":[{"key":"rack","values":["r"]}]}]`),
		alike(22, storagePath+"%s/volumeattachments", "v1beta1", "v1", "VolumeAttachment "+group22+"; use storage.k8s.io/v1 VolumeAttachment",
			`"spec":{"attacher":"a","nodeName":"n","source":{"persistentVolumeName":"v"}}`),
	}
}

// removedIn25 are the rows of the release 1.25.
func removedIn25() []removedVersion {
	return []removedVersion{
		alike(25, "/apis/batch/%s"+nsPath+"cronjobs", "v1beta1", "v1", "CronJob is deprecated in v1.21+, unavailable in v1.25+; use batch/v1 CronJob",
			`"spec":{"schedule":"@daily","startingDeadlineSeconds":9,"concurrencyPolicy":"Forbid","suspend":true,"successfulJobsHistoryLimit":1,"failedJobsHistoryLimit":2,"jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}}`),
		{release: 25, path: "/apis/discovery.k8s.io/v1beta1" + nsPath + "endpointslices", successor: "/apis/discovery.k8s.io/v1" + nsPath + "endpointslices",
			body:    `"addressType":"IPv4","ports":[{"name":"p","protocol":"TCP","port":80,"appProtocol":"http"}],"endpoints":[{"addresses":["10.1.2.3"],"conditions":{"ready":true},"hostname":"h","nodeName":"n","topology":{"kubernetes.io/hostname":"n","topology.kubernetes.io/zone":"z","rack":"r"}}]`,
			becomes: map[string]any{"endpoints.0.zone": "z", "endpoints.0.nodeName": "n", "endpoints.0.deprecatedTopology.rack": "r"}, stays: map[string]any{"endpoints.0.topology.rack": "r"},
			unwritable: func(obj object) {
				delete(obj["endpoints"].([]any)[0].(map[string]any)["topology"].(map[string]any), "rack")
			},
			warning: "EndpointSlice is deprecated in v1.21+, unavailable in v1.25+; use discovery.k8s.io/v1 EndpointSlice"},
		{release: 25, path: "/apis/events.k8s.io/v1beta1" + nsPath + "events", successor: "/apis/events.k8s.io/v1" + nsPath + "events",
			body: `"type":"Other","note":"m","deprecatedCount":3,"deprecatedFirstTimestamp":"2024-01-01T00:00:00Z","deprecatedLastTimestamp":"2024-01-02T00:00:00Z","deprecatedSource":{"component":"k","host":"h"},"regarding":{"namespace":"default","name":"p"}`, becomes: map[string]any{"type": "Other", "deprecatedCount": 3.0, "deprecatedSource.host": "h", "deprecatedLastTimestamp": "2024-01-02T00:00:00Z"},
			warning: "Event is deprecated in v1.22+, unavailable in v1.25+", refused: `eventTime: Required value`},
		{release: 25, path: "/apis/autoscaling/v2beta1" + nsPath + "horizontalpodautoscalers", successor: "/apis/autoscaling/v2" + nsPath + "horizontalpodautoscalers",
			body:    `"spec":{` + hpa + `,"metrics":[{"type":"Resource","resource":{"name":"memory","targetAverageUtilization":60}}]}`,
			becomes: map[string]any{"spec.metrics.0.resource.target.averageUtilization": 60.0}, stays: map[string]any{"spec.metrics.0.resource.targetAverageUtilization": 60.0},
			warning: "HorizontalPodAutoscaler is deprecated in v1.22+, unavailable in v1.25+; use autoscaling/v2 HorizontalPodAutoscaler"},
		{release: 25, path: "/apis/policy/v1beta1" + nsPath + "poddisruptionbudgets", successor: "/apis/policy/v1" + nsPath + "poddisruptionbudgets",
			body: `"spec":{"minAvailable":1,"selector":{}}`, becomes: map[string]any{"spec.selector.matchExpressions.0.operator": "Exists"}, stays: map[string]any{"spec.selector": map[string]any{}},
			warning: "PodDisruptionBudget is deprecated in v1.21+, unavailable in v1.25+; use policy/v1 PodDisruptionBudget"},
		{release: 25, path: "/apis/policy/v1beta1/podsecuritypolicies",
			body:    `"spec":{"seLinux":{"rule":"RunAsAny"},"runAsUser":{"rule":"RunAsAny"},"fsGroup":{"rule":"RunAsAny"},"supplementalGroups":{"rule":"RunAsAny"}}`,
			stays:   map[string]any{"spec.allowPrivilegeEscalation": true},
			warning: "PodSecurityPolicy is deprecated in v1.21+, unavailable in v1.25+"},
		alike(25, "/apis/node.k8s.io/%s/runtimeclasses", "v1beta1", "v1", "RuntimeClass is deprecated in v1.22+, unavailable in v1.25+", `"handler":"h","overhead":{"podFixed":{"cpu":"10m"}},"scheduling":{"nodeSelector":{"a":"b"},"tolerations":[{"key":"k","operator":"Exists"}]}`),
	}
}

// removedIn26And27 are the rows of the releases 1.26 and 1.27.
func removedIn26And27() []removedVersion {
	return append([]removedVersion{
		alike(26, "/apis/autoscaling/%s"+nsPath+"horizontalpodautoscalers", "v2beta2", "v2",
			"HorizontalPodAutoscaler is deprecated in v1.23+, unavailable in v1.26+; use autoscaling/v2 HorizontalPodAutoscaler", `"spec":{`+hpa+`,"minReplicas":2,"metrics":[{"type":"Pods","pods":{"metric":{"name":"m","selector":{"matchLabels":{"a":"b"}}},"target":{"type":"AverageValue","averageValue":"5"}}}],"behavior":{"scaleDown":{"selectPolicy":"Disabled"}}}`),
		alike(27, storagePath+"%s"+nsPath+"csistoragecapacities", "v1beta1", "v1", "CSIStorageCapacity is deprecated in v1.24+, unavailable in v1.27+; use storage.k8s.io/v1 CSIStorageCapacity",
			`"storageClassName":"s","capacity":"1Gi","maximumVolumeSize":"500Mi","nodeTopology":{"matchLabels":{"a":"b"}}`),
	}, flowControlRemovedIn(26, "v1beta1", "is deprecated in v1.23+, unavailable in v1.26+", "v1beta2", "v1beta3", "assuredConcurrencyShares")...)
}

// flowControlRemovedIn are the rows of a version of flow control, whose successor has the
// shares of a priority level in another field.
func flowControlRemovedIn(release int, version, warning, next, instead, shares string) []removedVersion {
	warning += "; use flowcontrol.apiserver.k8s.io/" + next + " "
	instead = "flowcontrol.apiserver.k8s.io/" + instead
	return []removedVersion{
		{release: release, path: flowcontrolPath + version + "/flowschemas", successor: flowcontrolPath + next + "/flowschemas", body: flowSpec, instead: instead, warning: "FlowSchema " + warning + "FlowSchema"},
		{
			release: release, path: flowcontrolPath + version + "/prioritylevelconfigurations", successor: flowcontrolPath + next + "/prioritylevelconfigurations", body: flow, instead: instead,
			warning: "PriorityLevelConfiguration " + warning + "PriorityLevelConfiguration", becomes: map[string]any{"spec.limited." + shares: 7.0}, stays: map[string]any{"spec.limited.assuredConcurrencyShares": 7.0},
		},
	}
}

// alike is a row of a type whose fields are the same in the successor; path has %s for the version.
func alike(release int, path, version, next, warning, body string) removedVersion {
	return removedVersion{release: release, path: fmt.Sprintf(path, version), successor: fmt.Sprintf(path, next), warning: warning, body: body}
}

var _ = Describe("Document 2, section 9: removed versions", Ordered, ContinueOnFailure, func() {
	var dataDir string
	var current *launch.Server
	var release int

	// at starts the server of a release on the objects of the releases before it.
	at := func(ctx SpecContext, minor int) *launch.Server {
		GinkgoHelper()
		if release == minor {
			return current
		}
		if current != nil {
			code, err := current.Stop(launch.Patience)
			Expect(err).NotTo(HaveOccurred())
			Expect(code).To(BeZero(), current.Output())
		}
		s, err := launch.Up(ctx, dataDir, launch.WithoutControllers(fmt.Sprintf("--release=1.%d", minor))...)
		Expect(err).NotTo(HaveOccurred())
		current, release = s, minor
		return s
	}
	request := func(ctx SpecContext, method, path, body string) launch.Response {
		GinkgoHelper()
		resp, err := launch.Send(ctx, current.Config, launch.Request{Method: method, Path: path, ContentType: "application/json", Body: body})
		Expect(err).NotTo(HaveOccurred(), "%s %s", method, path)
		return resp
	}

	BeforeAll(func() {
		dir, err := launch.TempDir()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		dataDir = filepath.Join(dir, "data")
		DeferCleanup(func() {
			if current != nil {
				_, err := current.Stop(launch.Patience)
				Expect(err).NotTo(HaveOccurred())
			}
		})
	})

	It("1.16 serves none of the versions that it removed", func(ctx SpecContext) {
		at(ctx, 16)
		for path, next := range map[string]string{
			"extensions/v1beta1" + nsPath + "networkpolicies": "networking.k8s.io/v1", "extensions/v1beta1/podsecuritypolicies": "policy/v1beta1",
			"extensions/v1beta1" + nsPath + "daemonsets": "apps/v1", "extensions/v1beta1" + nsPath + "deployments": "apps/v1", "extensions/v1beta1" + nsPath + "replicasets": "apps/v1",
			"apps/v1beta1" + nsPath + "deployments": "apps/v1", "apps/v1beta1" + nsPath + "statefulsets": "apps/v1", "apps/v1beta2" + nsPath + "daemonsets": "apps/v1",
			"apps/v1beta2" + nsPath + "deployments": "apps/v1", "apps/v1beta2" + nsPath + "statefulsets": "apps/v1", "apps/v1beta2" + nsPath + "replicasets": "apps/v1",
		} {
			Expect(request(ctx, "GET", "/apis/"+path, "").Status).To(Equal(404), path)
			resp := request(ctx, "POST", "/apis/"+path, `{"metadata":{"name":"again"}}`)
			Expect(resp.Status).To(Equal(404), path)
			Expect(resp.Body).To(ContainSubstring("use "+next+`; \"svc convert\"`), path)
		}
		for _, path := range []string{"/apis/networking.k8s.io/v1/networkpolicies", "/apis/apps/v1/deployments", "/apis/policy/v1beta1/podsecuritypolicies"} {
			Expect(request(ctx, "GET", path, "").Status).To(Equal(200), path)
		}
	})

	for _, release := range []int{22, 25, 26, 27, 29} {
		var rows []removedVersion
		for _, row := range removedVersions() {
			if row.release == release {
				rows = append(rows, row)
			}
		}
		name := func(i int) string {
			if rows[i].name != "" {
				return rows[i].name
			}
			return fmt.Sprintf("removed-%d-%d", release, i)
		}
		for i, row := range rows {
			It(fmt.Sprintf("1.%d serves %s and warns of it", release-1, row), func(ctx SpecContext) {
				at(ctx, release-1)
				metadata := fmt.Sprintf(`{"name":%q}`, name(i))
				if row.posted {
					metadata = `{}`
				}
				resp := request(ctx, "POST", row.path, fmt.Sprintf(`{"metadata":%s,%s}`, metadata, row.body))
				made := parse(resp, 201)
				Expect(strings.Join(resp.Header["Warning"], "\n")).To(ContainSubstring(row.warning + `"`))
				expectFields(made, row.stays)
				if row.posted {
					return
				}
				expectFields(parse(request(ctx, "GET", row.path+"/"+name(i), ""), 200), row.stays)
				if row.successor == "" {
					return
				}
				expectFields(parse(request(ctx, "GET", row.successor+"/"+name(i), ""), 200), row.becomes)
				expectSameThroughSuccessor(ctx, request, row, name(i))
			})
		}
		for i, row := range rows {
			if row.posted || row.successor == "" {
				continue
			}
			It(fmt.Sprintf("1.%d knows who has applied %s after a write in the version that replaces it", release-1, row), func(ctx SpecContext) {
				at(ctx, release-1)
				apply := fmt.Sprintf(`{%s,"metadata":{"name":%q},%s}`, row.typeMeta(), name(i), row.body)
				resp, err := launch.Send(ctx, current.Config, launch.Request{Method: "PATCH", Path: row.path + "/" + name(i) + "?fieldManager=applier&force=true", ContentType: "application/apply-patch+yaml", Body: apply})
				Expect(err).NotTo(HaveOccurred())
				parse(resp, 200)
				resp, err = launch.Send(ctx, current.Config, launch.Request{
					Method: "PATCH", Path: row.successor + "/" + name(i) + "?fieldManager=other", ContentType: "application/merge-patch+json", Body: `{"metadata":{"annotations":{"a":"b"}}}`,
				})
				Expect(err).NotTo(HaveOccurred())
				Expect(metadataOf(parse(resp, 200))["managedFields"]).To(ContainElements(HaveKeyWithValue("manager", "applier"), HaveKeyWithValue("manager", "other")))
			})
		}
		for i, row := range rows {
			It(fmt.Sprintf("1.%d serves %s no more, its objects by the successor", release, row), func(ctx SpecContext) {
				at(ctx, release)
				resp := request(ctx, "POST", row.path, fmt.Sprintf(`{"metadata":{"name":"again"},%s}`, row.body))
				Expect(resp.Status).To(Equal(404))
				Expect(resp.Body).To(ContainSubstring("svc convert"))
				if row.successor != "" {
					Expect(resp.Body).To(ContainSubstring("use " + row.next() + ";"))
				}
				if row.posted || row.successor == "" {
					return
				}
				path := row.successor + "/" + name(i)
				expectFields(parse(request(ctx, "GET", path, ""), 200), row.becomes)
				// What v1 refuses in new objects does not prevent updates of these. The
				// server itself may have written the status in between.
				Eventually(func(ctx SpecContext) int {
					return request(ctx, "PUT", path, toJSON(parse(request(ctx, "GET", path, ""), 200))).Status
				}).WithContext(ctx).Should(Equal(200))
				managers := metadataOf(parse(request(ctx, "GET", path, ""), 200))["managedFields"]
				if row.ofLibrary() { // as in Kubernetes, managers of versions that are not served are dropped
					Expect(managers).NotTo(ContainElement(HaveKeyWithValue("manager", "applier")))
					return
				}
				Expect(managers).To(ContainElement(HaveKeyWithValue("manager", "applier")))
			})
		}
	}
})

// expectSameThroughSuccessor creates an object of a row again, in the successor, from what
// that returns, and expects the removed version to return the same; or that the successor
// refuses it.
func expectSameThroughSuccessor(ctx SpecContext, request func(ctx SpecContext, method, path, body string) launch.Response, row removedVersion, name string) {
	GinkgoHelper()
	before := parse(request(ctx, "GET", row.path+"/"+name, ""), 200)
	again := parse(request(ctx, "GET", row.successor+"/"+name, ""), 200)
	metadata := metadataOf(again)
	again["metadata"] = map[string]any{"name": name + "-again", "annotations": metadata["annotations"]}
	if row.name != "" { // no other object may have this content
		again["metadata"].(map[string]any)["name"] = name
	}
	resp := request(ctx, "POST", row.successor, toJSON(again))
	switch {
	case row.refused != "":
		Expect(resp.Status).To(Equal(422), resp.Body)
		Expect(resp.Body).To(ContainSubstring(row.refused))
		return
	case row.name != "":
		Expect(resp.Status).To(Equal(409), resp.Body)
		return
	}
	parse(resp, 201)
	after := parse(request(ctx, "GET", row.path+"/"+name+"-again", ""), 200)
	for _, part := range []string{"metadata", "status"} { // the server writes them
		delete(before, part)
		delete(after, part)
	}
	if row.unwritable != nil {
		row.unwritable(before)
	}
	Expect(after).To(Equal(before))
}

// next is the group and version that replace the removed one.
func (r removedVersion) next() string {
	if r.instead != "" {
		return r.instead
	}
	parts := strings.Split(strings.TrimPrefix(r.successor, "/apis/"), "/")
	return parts[0] + "/" + parts[1]
}

// String is the version and the resource.
func (r removedVersion) String() string {
	return strings.Replace(strings.TrimPrefix(r.path, "/apis/"), "/namespaces/default", "", 1)
}

// ofLibrary reports whether the kind is one of the libraries' servers.
func (r removedVersion) ofLibrary() bool {
	return strings.HasPrefix(r.path, "/apis/apiextensions.k8s.io/") || strings.HasPrefix(r.path, "/apis/apiregistration.k8s.io/")
}

// typeMeta are the fields apiVersion and kind of the row's object.
func (r removedVersion) typeMeta() string {
	version := strings.Join(strings.Split(r.path, "/")[2:4], "/")
	kind, _, _ := strings.Cut(r.warning, " ")
	return fmt.Sprintf(`"apiVersion":%q,"kind":%q`, version, kind)
}

func toJSON(obj object) string {
	GinkgoHelper()
	text, err := json.Marshal(obj)
	Expect(err).NotTo(HaveOccurred())
	return string(text)
}

// certificateRequest is a request in PEM, in base64.
func certificateRequest() string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	if err != nil {
		panic(err)
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
}

// expectFields expects the values of fields by their paths.
func expectFields(obj object, want map[string]any) {
	GinkgoHelper()
	for path, value := range want {
		var at any = obj
		for step := range strings.SplitSeq(path, ".") {
			switch in := at.(type) {
			case map[string]any:
				at = in[step]
			case []any:
				var index int
				_, err := fmt.Sscan(step, &index)
				Expect(err).NotTo(HaveOccurred())
				Expect(len(in)).To(BeNumerically(">", index), path)
				at = in[index]
			}
		}
		if value == nil {
			Expect(at).To(BeNil(), path)
			continue
		}
		Expect(at).To(Equal(value), path)
	}
}
