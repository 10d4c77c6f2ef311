package serviceaccount

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"sigs.k8s.io/yaml"

	"svc.dev/svc/apiserver/admission/kindreader"
)

// accounts are those of the tests. The informer has all but "fresh".
const accounts = `
- metadata: {name: default}
- metadata: {name: fresh}
- metadata: {name: puller}
  imagePullSecrets: [{name: registry}]
- metadata: {name: plain}
  automountServiceAccountToken: false
- metadata: {name: strict, annotations: {kubernetes.io/enforce-mountable-secrets: "true"}}
  secrets: [{name: own}]
  imagePullSecrets: [{name: registry}]
`

const namespace = "ns"

func parse[T any](t *testing.T, text string) T {
	t.Helper()
	var parsed T
	if err := yaml.UnmarshalStrict([]byte(text), &parsed); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return parsed
}

// newPlugin returns a plugin with accounts, and its client.
func newPlugin(t *testing.T, accounts string) (*plugin, *fake.Clientset) {
	t.Helper()
	client := fake.NewClientset()
	factory := informers.NewSharedInformerFactory(client, 0)
	p := &plugin{kindreader.New(informer, admission.Create, admission.Update)}
	p.SetExternalKubeClientSet(client)
	p.SetExternalKubeInformerFactory(factory)
	for _, account := range parse[[]*corev1.ServiceAccount](t, accounts) {
		account.Namespace = namespace
		if err := client.Tracker().Add(account); err != nil {
			t.Fatal(err)
		}
		if account.Name == "fresh" {
			continue
		}
		if err := factory.Core().V1().ServiceAccounts().Informer().GetStore().Add(account); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.ValidateInitialization(); err != nil {
		t.Fatal(err)
	}
	return p, client
}

func attributes(operation admission.Operation, subresource string, pod *corev1.Pod) admission.Attributes {
	return admission.NewAttributesRecord(pod, nil, schema.GroupVersionKind{}, namespace, "p",
		schema.GroupVersionResource{Resource: "pods"}, subresource, operation, nil, false, nil)
}

// admit runs both phases of the plugin on a new pod, and returns the error.
func admit(t *testing.T, p *plugin, pod *corev1.Pod) string {
	t.Helper()
	a := attributes(admission.Create, "", pod)
	err := p.Admit(t.Context(), a, nil)
	if err == nil {
		err = p.Validate(t.Context(), a, nil)
	}
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestNewPodsGetAnAccountATokenAndPullSecrets(t *testing.T) {
	const volume = `{name: kube-api-access-xxxxx, projected: {defaultMode: 420, sources: [
		{serviceAccountToken: {path: token, expirationSeconds: 3607}},
		{configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}},
		{downwardAPI: {items: [{path: namespace, fieldRef: {apiVersion: v1, fieldPath: metadata.namespace}}]}}]}}`
	const mount = `{name: kube-api-access-xxxxx, readOnly: true, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}`
	for _, test := range []struct{ rule, pod, want string }{
		{"a pod without an account gets the default one", `{containers: [{name: a}], initContainers: [{name: b}]}`,
			`{serviceAccountName: default, containers: [{name: a, volumeMounts: [` + mount + `]}], initContainers: [{name: b, volumeMounts: [` + mount + `]}], volumes: [` + volume + `]}`},
		{"an account that the informer has not seen is found", `{serviceAccountName: fresh, automountServiceAccountToken: false, containers: [{name: a}]}`,
			`{serviceAccountName: fresh, automountServiceAccountToken: false, containers: [{name: a}]}`},
		{"the account's pull secrets are used", `{serviceAccountName: puller, automountServiceAccountToken: false}`,
			`{serviceAccountName: puller, automountServiceAccountToken: false, imagePullSecrets: [{name: registry}]}`},
		{"unless the pod names its own", `{serviceAccountName: puller, automountServiceAccountToken: false, imagePullSecrets: [{name: mine}]}`,
			`{serviceAccountName: puller, automountServiceAccountToken: false, imagePullSecrets: [{name: mine}]}`},
		{"an account can opt out of tokens", `{serviceAccountName: plain, containers: [{name: a}]}`, `{serviceAccountName: plain, containers: [{name: a}]}`},
		{"and the pod can opt in again", `{serviceAccountName: plain, automountServiceAccountToken: true, containers: [{name: a}]}`,
			`{serviceAccountName: plain, automountServiceAccountToken: true, containers: [{name: a, volumeMounts: [` + mount + `]}], volumes: [` + volume + `]}`},
		{"a container that mounts another volume at the path keeps it", `{containers: [{name: a, volumeMounts: [{name: own, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]}], volumes: [{name: own}]}`,
			`{serviceAccountName: default, containers: [{name: a, volumeMounts: [{name: own, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]}], volumes: [{name: own}]}`},
		{"a volume of a copied pod is mounted again", `{containers: [{name: a}], volumes: [{name: kube-api-access-xxxxx}]}`,
			`{serviceAccountName: default, containers: [{name: a, volumeMounts: [` + mount + `]}], volumes: [{name: kube-api-access-xxxxx}]}`},
	} {
		t.Run(test.rule, func(t *testing.T) {
			p, _ := newPlugin(t, accounts)
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: parse[corev1.PodSpec](t, test.pod)}
			if err := admit(t, p, pod); err != "" {
				t.Fatal(err)
			}
			want := parse[corev1.PodSpec](t, strings.ReplaceAll(test.want, "kube-api-access-xxxxx", nameOfVolume(pod)))
			if diff := cmp.Diff(want, pod.Spec); diff != "" {
				t.Errorf("wrong pod (-want +got):\n%s", diff)
			}
		})
	}
}

// nameOfVolume returns the name of the pod's volume with the token.
func nameOfVolume(pod *corev1.Pod) string {
	for _, v := range pod.Spec.Volumes {
		if strings.HasPrefix(v.Name, "kube-api-access-") {
			return v.Name
		}
	}
	return ""
}

func TestPodsThatAreRefused(t *testing.T) {
	const mirror = `metadata: {annotations: {kubernetes.io/config.mirror: x}}`
	for _, test := range []struct{ rule, pod, want string }{
		{"an account must exist", `spec: {serviceAccountName: absent}`, `pods "p" is forbidden: error looking up service account ns/absent: serviceaccount "absent" not found`},
		{"a mirror pod is not changed", mirror, ``},
		{"it has no account", `{` + mirror + `, spec: {serviceAccountName: default}}`, `pods "p" is forbidden: a mirror pod may not reference service accounts`},
		{"it has no secret", `{` + mirror + `, spec: {imagePullSecrets: [{name: a}]}}`, `pods "p" is forbidden: a mirror pod may not reference secrets`},
		{"it has no token", `{` + mirror + `, spec: {volumes: [{name: a, projected: {sources: [{serviceAccountToken: {path: a}}]}}]}}`,
			`pods "p" is forbidden: a mirror pod may not use ServiceAccountToken volume projections`},
		{"an account that enforces its secrets allows these", `spec: {serviceAccountName: strict, imagePullSecrets: [{name: registry}], volumes: [{name: a, secret: {secretName: own}}], containers: [{name: c, env: [{name: E, value: x}, {name: F, valueFrom: {secretKeyRef: {name: own, key: k}}}]}]}`, ``},
		{"it forbids others in volumes", `spec: {serviceAccountName: strict, volumes: [{name: a, secret: {secretName: other}}]}`,
			`pods "p" is forbidden: volume with secret.secretName="other" is not allowed because service account strict does not reference that secret`},
		{"in variables of containers", `spec: {serviceAccountName: strict, containers: [{name: c, env: [{name: E, valueFrom: {secretKeyRef: {name: other, key: k}}}]}]}`,
			`pods "p" is forbidden: container c with envVar E referencing secret.secretName="other" is not allowed because service account strict does not reference that secret`},
		{"in those of init containers", `spec: {serviceAccountName: strict, initContainers: [{name: c, env: [{name: E, valueFrom: {secretKeyRef: {name: other, key: k}}}]}]}`,
			`pods "p" is forbidden: init container c with envVar E referencing secret.secretName="other" is not allowed because service account strict does not reference that secret`},
		{"in all variables of a secret", `spec: {serviceAccountName: strict, initContainers: [{name: c, envFrom: [{secretRef: {name: other}}]}]}`,
			`pods "p" is forbidden: init container c with envFrom referencing secret.secretName="other" is not allowed because service account strict does not reference that secret`},
		{"and as pull secrets", `spec: {serviceAccountName: strict, imagePullSecrets: [{name: other}]}`,
			`pods "p" is forbidden: imagePullSecrets[0].name="other" is not allowed because service account strict does not reference that imagePullSecret`},
	} {
		t.Run(test.rule, func(t *testing.T) {
			p, _ := newPlugin(t, accounts)
			pod := parse[*corev1.Pod](t, test.pod)
			given := pod.DeepCopy()
			if got := admit(t, p, pod); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if diff := cmp.Diff(given, pod); isMirror(pod) && diff != "" {
				t.Errorf("the mirror pod was changed (-before +after):\n%s", diff)
			}
		})
	}
}

func TestEphemeralContainersUseTheSecretsOfTheAccountOnly(t *testing.T) {
	for pod, want := range map[string]string{
		`{serviceAccountName: strict, ephemeralContainers: [{name: c, envFrom: [{secretRef: {name: other}}]}]}`:                               `ephemeral container c with envFrom referencing secret.secretName="other" is not allowed`,
		`{serviceAccountName: strict, ephemeralContainers: [{name: c, env: [{name: E, valueFrom: {secretKeyRef: {name: own, key: k}}}]}]}`:    ``,
		`{serviceAccountName: strict, ephemeralContainers: [{name: c, env: [{name: E, valueFrom: {secretKeyRef: {name: other, key: k}}}]}]}`:  `ephemeral container c with envVar E referencing secret.secretName="other" is not allowed`,
		`{serviceAccountName: default, ephemeralContainers: [{name: c, env: [{name: E, valueFrom: {secretKeyRef: {name: other, key: k}}}]}]}`: ``,
		`{ephemeralContainers: [{name: c}]}`:                             `no service account specified for pod ns/p`,
		`{serviceAccountName: absent, ephemeralContainers: [{name: c}]}`: `serviceaccount "absent" not found`,
	} {
		p, _ := newPlugin(t, accounts)
		changed := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: parse[corev1.PodSpec](t, pod)}
		err := p.Validate(t.Context(), attributes(admission.Update, "ephemeralcontainers", changed), nil)
		if got := errorText(err); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: got %q, want %q", pod, got, want)
		}
	}
}

func TestUpdatesAreNotChecked(t *testing.T) {
	p, _ := newPlugin(t, accounts)
	for _, subresource := range []string{"", "status"} {
		pod := &corev1.Pod{}
		a := attributes(admission.Update, subresource, pod)
		if err := p.Admit(t.Context(), a, nil); err != nil || pod.Spec.ServiceAccountName != "" {
			t.Errorf("subresource %q: error %v, account %q", subresource, err, pod.Spec.ServiceAccountName)
		}
		if err := p.Validate(t.Context(), a, nil); err != nil {
			t.Errorf("subresource %q: %v", subresource, err)
		}
	}
}

// TestTheDefaultAccountOfANewNamespaceIsAwaited creates the account while a pod's
// creation waits for it.
func TestTheDefaultAccountOfANewNamespaceIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, client := newPlugin(t, `[]`)
		time.AfterFunc(450*time.Millisecond, func() {
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}}
			if _, err := client.CoreV1().ServiceAccounts(namespace).Create(context.Background(), account, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		})
		if err := admit(t, p, &corev1.Pod{}); err != "" {
			t.Error(err)
		}
	})
}

func TestAMissingDefaultAccountIsAwaitedForTwoSecondsAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, _ := newPlugin(t, `[]`)
		start := time.Now()
		if got, want := admit(t, p, &corev1.Pod{}), `pods "p" is forbidden: error looking up service account ns/default: serviceaccount "default" not found`; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if took := time.Since(start); took < 900*time.Millisecond || took > 2*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
