package node

import (
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
})
