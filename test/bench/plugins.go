package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"

	"svc.dev/svc/apiserver/admission/plugins"
)

// allPlugins is a system whose API server runs with all admission plugins that do not refuse
// everything, and need no backend.
type allPlugins struct{ system }

// serversWithAllPlugins returns the systems of apiServers with all plugins.
func serversWithAllPlugins(o options) ([]system, error) {
	systems, err := apiServers(o)
	for i := range systems {
		systems[i] = allPlugins{systems[i]}
	}
	return systems, err
}

// pluginConfig configures EventRateLimit so that it refuses nothing.
const pluginConfig = `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: EventRateLimit
  configuration: {apiVersion: eventratelimit.admission.k8s.io/v1alpha1, kind: Configuration, limits: [{type: Namespace, qps: 1000000, burst: 1000000}]}
`

// Processes implements system.
func (a allPlugins) Processes(dir string) ([]process, error) {
	left := []string{"AlwaysDeny", "ImagePolicyWebhook"}
	if a.Name() == "kube" {
		left = append(left, "SecurityContextDeny", "PersistentVolumeLabel") // which it no longer has
	}
	var names []string
	for _, p := range plugins.All(plugins.Settings{}) {
		if !slices.Contains(left, p.Name) {
			names = append(names, p.Name)
		}
	}
	file := filepath.Join(dir, "plugins.yaml")
	processes, err := a.system.Processes(dir)
	for i := range processes {
		args := slices.Clone(processes[i].args)
		disables := slices.IndexFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "--disable-admission-plugins=") })
		if disables < 0 {
			continue // it is etcd
		}
		args[disables] = "--enable-admission-plugins=" + strings.Join(names, ",")
		if mode := slices.Index(args, "--authorization-mode=RBAC"); mode >= 0 { // svc has both by default
			args[mode] = "--authorization-mode=Node,RBAC"
		}
		processes[i].args = append(args, "--admission-control-config-file="+file)
	}
	return processes, errors.Join(err, os.WriteFile(file, []byte(pluginConfig), 0o600))
}

// admitted are requests, and the plugins that act on their objects. "@" in the path and the
// body stands for the number of the object.
type admitted struct {
	what, method, path, body string
	// agent is the node in whose name they are sent; empty for an administrator.
	agent   string
	plugins []string
}

// limitedNamespace has limits, a quota and a pod security standard.
const limitedNamespace = "bench-limited"

// restrictions are what there is in limitedNamespace, in their order.
var restrictions = []admitted{
	{method: http.MethodPost, path: "/api/v1/namespaces/" + limitedNamespace + "/limitranges", body: `{"metadata":{"name":"l"},"spec":{"limits":[{"type":"Container","default":{"cpu":"2"},"defaultRequest":{"cpu":"1m"},"max":{"cpu":"4"}}]}}`},
	{method: http.MethodPost, path: "/api/v1/namespaces/" + limitedNamespace + "/resourcequotas", body: `{"metadata":{"name":"q"},"spec":{"hard":{"pods":"100k","requests.cpu":"100k"}}}`},
	{method: http.MethodPatch, path: "/api/v1/namespaces/" + limitedNamespace + "/resourcequotas/q/status", body: `{"status":{"hard":{"pods":"100k","requests.cpu":"100k"},"used":{"pods":"0","requests.cpu":"0"}}}`},
	{method: http.MethodPatch, path: "/api/v1/namespaces/" + limitedNamespace, body: `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"baseline","pod-security.kubernetes.io/warn":"restricted"}}}`},
}

// onEachKind are the requests on whose objects plugins act. What plugins that act on all objects
// cost is measured of ConfigMaps. signingRequest is one of a certificate, in base64.
func onEachKind(signingRequest string) []admitted {
	const core, certificates = "/api/v1/namespaces/" + verbNamespace + "/", "/apis/certificates.k8s.io/v1/certificatesigningrequests"
	const pod = `{"metadata":{"name":"p@"},"spec":{"containers":[{"name":"c","image":"registry.example.com/app:v1"}]}}`
	post := func(what, path, body string, plugins ...string) admitted {
		return admitted{what: what, method: http.MethodPost, path: path, body: body, plugins: plugins}
	}
	patch := func(what, path, body string, plugins ...string) admitted {
		return admitted{what: what, method: http.MethodPatch, path: path, body: body, plugins: plugins}
	}
	byAgent := patch("updates of a node by its agent", "/api/v1/nodes/n1", `{"metadata":{"annotations":{"a":"@"}}}`, "NodeRestriction")
	byAgent.agent = "n1"
	return []admitted{
		post("pods", core+"pods", pod, "SecurityContextDeny", "LimitPodHardAntiAffinityTopology", "LimitRanger", "ServiceAccount", "AlwaysPullImages", "PodSecurity", "PodNodeSelector",
			"Priority", "DefaultTolerationSeconds", "PodTolerationRestriction", "ExtendedResourceToleration", "RuntimeClass", "PodTopologyLabels", "ResourceQuota"),
		post("pods with limits, quota and standard", "/api/v1/namespaces/"+limitedNamespace+"/pods", pod, "LimitRanger", "PodSecurity", "ResourceQuota"),
		post("configmaps", core+"configmaps", `{"metadata":{"name":"c@"}}`, "AlwaysAdmit", "NamespaceAutoProvision", "NamespaceLifecycle", "NamespaceExists", "OwnerReferencesPermissionEnforcement",
			"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook", "ResourceQuota"),
		post("services", core+"services", `{"metadata":{"name":"s@"},"spec":{"clusterIP":"None","ports":[{"port":80}]}}`, "DenyServiceExternalIPs"),
		post("events", core+"events", `{"metadata":{"name":"e@"},"involvedObject":{"namespace":"`+verbNamespace+`"}}`, "EventRateLimit"),
		post("volumes", "/api/v1/persistentvolumes", `{"metadata":{"name":"v@"},"spec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"},"nfs":{"server":"192.0.2.1","path":"/"}}}`,
			"PersistentVolumeLabel", "StorageObjectInUseProtection"),
		post("claims", core+"persistentvolumeclaims", `{"metadata":{"name":"c@"},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`,
			"LimitRanger", "DefaultStorageClass", "StorageObjectInUseProtection"),
		patch("updates of claims", core+"persistentvolumeclaims/c@", `{"metadata":{"annotations":{"a":"b"}}}`, "PersistentVolumeClaimResize"),
		post("ingresses", "/apis/networking.k8s.io/v1/namespaces/"+verbNamespace+"/ingresses", `{"metadata":{"name":"i@"},"spec":{"defaultBackend":{"service":{"name":"s","port":{"number":80}}}}}`, "DefaultIngressClass"),
		post("nodes", "/api/v1/nodes", `{"metadata":{"name":"n@"}}`, "TaintNodesByCondition"),
		byAgent,
		post("signing requests", certificates, `{"metadata":{"name":"r@"},"spec":{"request":"`+signingRequest+`","signerName":"kubernetes.io/kube-apiserver-client","usages":["client auth"]}}`, "CertificateSubjectRestriction"),
		patch("status of signing requests", certificates+"/r@/status", `{"status":{"conditions":[{"type":"Failed","status":"True","reason":"Bench"}]}}`, "CertificateSigning"),
		patch("approvals", certificates+"/r@/approval", `{"status":{"conditions":[{"type":"Approved","status":"True","reason":"Bench"}]}}`, "CertificateApproval"),
	}
}

// measurePlugins sends requests one by one, and records what the server says that each plugin
// has taken for one.
func measurePlugins(ctx context.Context, t *trial) error {
	config, err := t.config()
	if err != nil {
		return err
	}
	clients, err := dial(ctx, config, 1)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	admin := clients[0]
	for _, name := range []string{verbNamespace, limitedNamespace} {
		if err := t.namespace(ctx, admin, name); err != nil {
			return err
		}
	}
	for _, a := range restrictions {
		if err := admin.do(ctx, a.request(0)); err != nil {
			return err
		}
	}
	signingRequest, err := newSigningRequest()
	if err != nil {
		return err
	}
	for _, a := range onEachKind(signingRequest) {
		if err := t.measureAdmitted(ctx, config, admin, a); err != nil {
			return fmt.Errorf("%s: %w", a.what, err)
		}
	}
	return nil
}

// request returns the request for the object of a number.
func (a admitted) request(i int) request {
	numbered := strings.NewReplacer("@", strconv.Itoa(i))
	r := request{method: a.method, path: numbered.Replace(a.path), body: []byte(numbered.Replace(a.body))}
	if a.method == http.MethodPatch {
		r.contentType = mergeType
	}
	return r
}

func (t *trial) measureAdmitted(ctx context.Context, config *rest.Config, admin *client, a admitted) error {
	sender := admin
	if a.agent != "" {
		agents, err := dial(ctx, config, 1)
		if err != nil {
			return err
		}
		defer closeAll(agents)
		sender = agents[0]
		sender.header = http.Header{"Impersonate-User": {"system:node:" + a.agent}, "Impersonate-Group": {"system:nodes", "system:authenticated"}}
	}
	const warmUp = 20
	send := func(from, to int) error {
		for i := from; i < to; i++ {
			if err := sender.do(ctx, a.request(i)); err != nil {
				return err
			}
		}
		return nil
	}
	for tries := 0; ; tries++ { // the first one may come before a plugin has seen what it needs
		err := send(0, 1)
		if err == nil {
			break
		}
		if tries == 100 {
			return err
		}
		if err := wait(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	if err := send(1, warmUp); err != nil {
		return err
	}
	operation := map[string]string{http.MethodPost: "CREATE", http.MethodPatch: "UPDATE"}[a.method]
	before, err := admissionTimes(ctx, admin, operation)
	if err != nil {
		return err
	}
	count := t.sizes.Operations[1]
	if err := send(warmUp, warmUp+count); err != nil {
		return err
	}
	after, err := admissionTimes(ctx, admin, operation)
	if err != nil {
		return err
	}
	for _, name := range a.plugins {
		if spent, ok := after[name]; ok { // kube-apiserver lacks some
			t.record(lower("admission of "+a.what, name, "µs"), (spent-before[name])/float64(count)*1e6)
		}
	}
	return nil
}

// newSigningRequest returns a request of a client certificate, in base64.
func newSigningRequest() (string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "bench"}}, key)
	if err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})), nil
}

// admissionTimes returns the seconds that each plugin has taken for requests of an operation.
func admissionTimes(ctx context.Context, c *client, operation string) (map[string]float64, error) {
	body, err := c.open(ctx, request{method: http.MethodGet, path: "/metrics", accept: "*/*"})
	if err != nil {
		return nil, err
	}
	defer body.Close()
	return readAdmissionTimes(body, operation)
}

// readAdmissionTimes reads the metric of the library of API servers.
func readAdmissionTimes(metrics io.Reader, operation string) (map[string]float64, error) {
	const metric = "apiserver_admission_controller_admission_duration_seconds"
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(metrics)
	if err != nil {
		return nil, err
	}
	if families[metric] == nil {
		return nil, fmt.Errorf("the server has no metric %s", metric)
	}
	seconds := map[string]float64{}
	for _, m := range families[metric].GetMetric() {
		labels := map[string]string{}
		for _, l := range m.GetLabel() {
			labels[l.GetName()] = l.GetValue()
		}
		if labels["operation"] == operation {
			seconds[labels["name"]] += m.GetHistogram().GetSampleSum()
		}
	}
	return seconds, nil
}
