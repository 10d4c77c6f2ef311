package faults

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	authorizersHead = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n"
	pluginsHead     = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	webhookAuthor   = `- type: Webhook
  name: company
  webhook:
    timeout: 30s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: Deny
    authorizedTTL: 1ms
    unauthorizedTTL: 1ms
    connectionInfo:
      type: KubeConfigFile
      kubeConfigFile: INNER
`
	webhookAdmission = "apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: INNER"
)

// TestABadFileThatAConfigurationNamesEndsTheProgramWithOneLine has the kubeconfigs that the
// configurations of authorizers and of admission plugins name, each missing, unreadable,
// malformed and of another kind.
func TestABadFileThatAConfigurationNamesEndsTheProgramWithOneLine(t *testing.T) {
	dir := goodFiles(t)
	for i, test := range []struct{ rule, flag, content, with, field string }{
		{"a webhook that authorizes", "authorization-config", authorizersHead + webhookAuthor, "", "authorizers[0]."},
		{"mutating webhooks", "admission-control-config-file", pluginsHead + "- name: MutatingAdmissionWebhook\n  configuration: {" + webhookAdmission + "}\n", "", "plugins[0].configuration.kubeConfigFile: "},
		{"validating webhooks, in a file of their own", "admission-control-config-file", pluginsHead + "- name: ValidatingAdmissionWebhook\n  path: PATH\n", "", "plugins[0].path: PATH: line 1: kubeConfigFile: "},
		{"the policy of images", "admission-control-config-file", pluginsHead + "- name: ImagePolicyWebhook\n  configuration: {imagePolicy: {kubeConfigFile: INNER}}\n",
			" --enable-admission-plugins=ImagePolicyWebhook", "plugins[0].configuration.imagePolicy.kubeConfigFile: "},
	} {
		for j, bad := range []string{"missing", "", "malformed", "policy.yaml"} { // "" is the directory
			number := 600 + 10*i + j
			inner, path, outer := filepath.Join(dir, bad), filepath.Join(dir, fmt.Sprintf("path-%d", number)), filepath.Join(dir, fmt.Sprintf("outer-%d", number))
			replace := strings.NewReplacer("INNER", inner, "PATH", path)
			g := NewWithT(t)
			g.Expect(os.WriteFile(path, []byte(replace.Replace("{"+webhookAdmission+"}\n")), 0o600)).To(Succeed())
			g.Expect(os.WriteFile(outer, []byte(replace.Replace(test.content)), 0o600)).To(Succeed())
			args := arguments("apiserver", dir, number, "--"+test.flag+"="+outer+test.with)
			t.Run(test.rule+" "+bad, func(t *testing.T) {
				t.Parallel()
				NewWithT(t).Expect(onlyLine(t, args)).To(And(HavePrefix("svc apiserver: --"+test.flag+": "+outer+": "),
					ContainSubstring("line "), ContainSubstring(replace.Replace(test.field)), ContainSubstring("kubeConfigFile"), ContainSubstring(inner)))
			})
		}
	}
}

// backend answers reviews of those who have the token of their kubeconfig.
type backend struct{ *httptest.Server }

// newBackend allows the user jane everything, adds an annotation to objects, and refuses the
// image "bad".
func newBackend(t *testing.T) backend {
	t.Helper()
	handle := func(token string, answer func(*json.Decoder) (any, error)) http.HandlerFunc {
		return func(w http.ResponseWriter, req *http.Request) {
			if req.Header.Get("Authorization") != "Bearer "+token {
				http.Error(w, "another client", http.StatusUnauthorized)
				return
			}
			answered, err := answer(json.NewDecoder(req.Body))
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(answered)
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/authorize", handle("of-authorization", func(body *json.Decoder) (any, error) {
		var review authorizationv1.SubjectAccessReview
		err := body.Decode(&review)
		review.Status.Allowed = review.Spec.User == "jane"
		return review, err
	}))
	mux.HandleFunc("/images", handle("of-images", func(body *json.Decoder) (any, error) {
		var review imagepolicyv1alpha1.ImageReview
		err := body.Decode(&review)
		review.Status.Allowed = err == nil && review.Spec.Containers[0].Image != "bad"
		return review, err
	}))
	mux.HandleFunc("/admit", handle("of-admission", func(body *json.Decoder) (any, error) {
		var review admissionv1.AdmissionReview
		err := body.Decode(&review)
		if err == nil {
			kind := admissionv1.PatchTypeJSONPatch
			review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true, PatchType: &kind, Patch: []byte(`[{"op": "add", "path": "/data", "value": {"added": "yes"}}]`)}
		}
		return review, err
	}))
	b := backend{httptest.NewTLSServer(mux)}
	t.Cleanup(b.Close)
	return b
}

func (b backend) authority() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: b.Certificate().Raw})
}

// kubeconfig writes the kubeconfig of a path of the backend, with a user of the name and its
// token.
func (b backend) kubeconfig(t *testing.T, dir, path, user, token string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["backend"] = &clientcmdapi.Cluster{Server: b.URL + path, CertificateAuthorityData: b.authority()}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["backend"] = &clientcmdapi.Context{Cluster: "backend", AuthInfo: user}
	config.CurrentContext = "backend"
	file := filepath.Join(dir, token)
	NewWithT(t).Expect(clientcmd.WriteToFile(*config, file)).To(Succeed())
	return file
}

// TestTheFilesThatConfigurationsNameAreUsed: the backend answers only who has the token of
// the file.
func TestTheFilesThatConfigurationsNameAreUsed(t *testing.T) {
	g := NewWithT(t)
	b, dir := newBackend(t), tempDir(t)
	authorizers, plugins := filepath.Join(dir, "authorizers.yaml"), filepath.Join(dir, "plugins.yaml")
	g.Expect(os.WriteFile(authorizers, []byte(authorizersHead+"- {type: Node, name: node}\n- {type: RBAC, name: rbac}\n"+
		strings.Replace(webhookAuthor, "INNER", b.kubeconfig(t, dir, "/authorize", "svc", "of-authorization"), 1)), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(plugins, []byte(pluginsHead+
		"- name: MutatingAdmissionWebhook\n  configuration: {"+strings.Replace(webhookAdmission, "INNER", b.kubeconfig(t, dir, "", b.Listener.Addr().String(), "of-admission"), 1)+"}\n"+
		"- name: ImagePolicyWebhook\n  configuration: {imagePolicy: {kubeConfigFile: "+b.kubeconfig(t, dir, "/images", "svc", "of-images")+"}}\n"), 0o600)).To(Succeed())
	server := up(t, filepath.Join(dir, "data"), "--authorization-config="+authorizers, "--admission-control-config-file="+plugins, "--enable-admission-plugins=ImagePolicyWebhook")
	client := clientOf(t, server.Config)

	for user, allowed := range map[string]bool{"jane": true, "joe": false} {
		config := rest.CopyConfig(server.Config)
		config.Impersonate.UserName = user
		as, err := kubernetes.NewForConfig(config)
		g.Expect(err).NotTo(HaveOccurred())
		_, err = as.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
		g.Expect(err == nil).To(Equal(allowed), "%s: %v", user, err)
	}

	for image, allowed := range map[string]bool{"good": true, "bad": false} {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: image}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image}}}}
		_, err := client.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{})
		g.Expect(err == nil).To(Equal(allowed), "%s: %v", image, err)
		g.Expect(err == nil || apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
	}

	url, none := b.URL+"/admit", admissionregistrationv1.SideEffectClassNone
	_, err := client.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "adds"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: "adds.example.com", SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: b.authority()},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
			}},
		}},
	}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(func() (map[string]string, error) {
		made, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "a"}}, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		return made.Data, nil
	}).Should(HaveKeyWithValue("added", "yes"))
}
