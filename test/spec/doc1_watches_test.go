package spec

import (
	"bufio"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"

	"svc.dev/svc/test/launch"
)

var _ = Describe("Document 1, section 4: a watch is a GET of a list or get path", func() {
	It("a watch on the path of an object shows that object only", func(ctx SpecContext) {
		ns := namespace(ctx)
		maps := client.CoreV1().ConfigMaps(ns)
		for _, name := range []string{"watched", "other"} {
			_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
		}
		transport, err := rest.TransportFor(server.Config)
		Expect(err).NotTo(HaveOccurred())
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, server.Config.Host+"/api/v1/namespaces/"+ns+"/configmaps/watched?watch=1", nil)
		Expect(err).NotTo(HaveOccurred())
		resp, err := transport.RoundTrip(req)
		Expect(err).NotTo(HaveOccurred())
		defer resp.Body.Close()
		Expect(resp.StatusCode).To(Equal(200))
		events := bufio.NewScanner(resp.Body)
		next := func() string {
			GinkgoHelper()
			Expect(events.Scan()).To(BeTrue(), "the watch goes on: %v", events.Err())
			var event struct {
				Type   string           `json:"type"`
				Object corev1.ConfigMap `json:"object"`
			}
			Expect(json.Unmarshal(events.Bytes(), &event)).To(Succeed())
			return event.Type + " " + event.Object.Name
		}
		Expect(next()).To(Equal("ADDED watched"))
		Expect(maps.Delete(ctx, "other", metav1.DeleteOptions{})).To(Succeed())
		Expect(maps.Delete(ctx, "watched", metav1.DeleteOptions{})).To(Succeed())
		Expect(next()).To(Equal("DELETED watched"))
	})

	It("needs the verb watch", func(ctx SpecContext) {
		ns := namespace(ctx)
		_, err := client.RbacV1().Roles(ns).Create(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "get"},
			Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list"}}}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = client.RbacV1().RoleBindings(ns).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "get"},
			Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: "reader"}},
			RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "get"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		as := map[string]string{"Impersonate-User": "reader"}
		path := "/api/v1/namespaces/" + ns + "/configmaps/absent"
		Eventually(ctx, func(g Gomega) {
			resp := send(ctx, launch.Request{Method: "GET", Path: path, Header: as})
			g.Expect(resp.Status).To(Equal(404), resp.Body)
		}).Should(Succeed(), "a get is allowed")
		status := failed(send(ctx, launch.Request{Method: "GET", Path: path + "?watch=1&timeoutSeconds=1", Header: as}), 403)
		Expect(strings.ToLower(status.Message)).To(ContainSubstring(`cannot watch resource "configmaps"`))
	})

	It("a BOOKMARK comes after all changes up to its version, and has only the version", func(ctx SpecContext) {
		ns, other := namespace(ctx), namespace(ctx)
		named := func(name string) *corev1.ConfigMap {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		}
		seen, err := client.CoreV1().ConfigMaps(ns).Create(ctx, named("seen"), metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		// The server sends one shortly before the end of a watch, if there is something new: by
		// then, a busy server may not have made the change yet, and is given longer.
		seconds := int64(2)
		Eventually(ctx, func(g Gomega) {
			seconds *= 2
			watched, err := client.CoreV1().ConfigMaps(ns).Watch(ctx, metav1.ListOptions{
				FieldSelector: "metadata.name=seen", AllowWatchBookmarks: true, TimeoutSeconds: &seconds, ResourceVersion: seen.ResourceVersion,
			})
			Expect(err).NotTo(HaveOccurred())
			defer watched.Stop()
			unseen, err := client.CoreV1().ConfigMaps(other).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "unseen-"}}, metav1.CreateOptions{})
			Expect(err).NotTo(HaveOccurred())
			var event watch.Event
			g.Eventually(ctx, watched.ResultChan()).Should(Receive(&event))
			Expect(event.Type).To(Equal(watch.Bookmark))
			version := event.Object.(*corev1.ConfigMap).ResourceVersion
			Expect(event.Object).To(Equal(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ResourceVersion: version}}))
			order, err := resourceversion.CompareResourceVersion(version, unseen.ResourceVersion)
			Expect(err).NotTo(HaveOccurred())
			g.Expect(order).To(BeNumerically(">=", 0), "changes that the watch does not show are before it, too")
		}).Should(Succeed())
	})
})
