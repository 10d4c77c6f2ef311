package node

import (
	"net/url"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// The directory of the files that a pod's clients read.
const accountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

var _ = Describe("the service account of a pod", func() {
	It("is mounted, and authenticates the pod at the API server", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: Pod
metadata: {name: plain}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - {name: main, image: "localhost/svc/busybox:1", command: [sleep, "1000"]}
`)
		pod := s.await(ctx, "plain", beReady())
		Expect(pod.Spec.ServiceAccountName).To(Equal("default"))
		Expect(s.exec(ctx, "plain", "cat "+accountDir+"/namespace")).To(Equal(s.name))

		api, err := kubernetes.NewForConfig(&rest.Config{
			Host:            node.Config.Host,
			BearerToken:     s.exec(ctx, "plain", "cat "+accountDir+"/token"),
			TLSClientConfig: rest.TLSClientConfig{CAData: []byte(s.exec(ctx, "plain", "cat "+accountDir+"/ca.crt"))},
		})
		Expect(err).NotTo(HaveOccurred())
		self, err := api.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(self.Status.UserInfo.Username).To(Equal("system:serviceaccount:" + s.name + ":default"))
		Expect(self.Status.UserInfo.Groups).To(ConsistOf("system:serviceaccounts", "system:serviceaccounts:"+s.name, "system:authenticated"))
		Expect(self.Status.UserInfo.Extra).To(HaveKeyWithValue("authentication.kubernetes.io/pod-uid", ConsistOf(string(pod.UID))))

		_, err = api.CoreV1().Secrets(s.name).List(ctx, metav1.ListOptions{})
		Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
		s.run(ctx, "delete", "pod", "plain")
		Eventually(func() error {
			_, err := api.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
			return err
		}).Should(MatchError(apierrors.IsUnauthorized, "a token ends with its pod"))
	})

	It("lets a program of the pod use the API with client-go, as far as its account may", func(ctx SpecContext) {
		s := newSpace(ctx)
		s.apply(ctx, `
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [pods], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader}]
---
`+webServer("restricted", "serviceAccountName: reader"))
		web := "http://" + s.await(ctx, "restricted", beReady()).Status.PodIP + ":8080"
		Expect(get(ctx, web+"/whoami")).To(HavePrefix("system:serviceaccount:" + s.name + ":reader "))
		ask := func(verb, path string) (string, error) {
			return get(ctx, web+"/ask?"+url.Values{"verb": {verb}, "path": {path}}.Encode())
		}
		own := "/api/v1/namespaces/" + s.name
		Eventually(func() (string, error) { return ask("GET", own+"/pods") }).Should(ContainSubstring(`"name":"restricted"`))
		for path, verb := range map[string]string{
			own + "/secrets":                      "GET",
			own + "/pods/restricted":              "DELETE",
			"/api/v1/pods":                        "GET",
			"/api/v1/namespaces/kube-system/pods": "GET",
			"/api/v1/nodes":                       "GET",
			"/metrics":                            "GET",
		} {
			_, err := ask(verb, path)
			Expect(err).To(MatchError(HavePrefix("403 Forbidden: ")), verb+" "+path)
		}
	})
})
