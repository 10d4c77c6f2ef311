package e2e

import (
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/test/launch"
)

var _ = Describe("a server without the layers that exist for speed", Ordered, func() {
	var plain *launch.Server
	BeforeAll(func(ctx SpecContext) {
		dir, err := launch.TempDir()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		var off []string
		for _, gate := range gates.Own() {
			off = append(off, string(gate)+"=false")
		}
		plain, err = launch.Up(ctx, filepath.Join(dir, "data"), launch.WithoutControllers("--feature-gates="+strings.Join(off, ","))...)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func() {
			code, err := plain.Stop(launch.Patience)
			Expect(err).NotTo(HaveOccurred())
			Expect(code).To(BeZero(), "exit code after SIGTERM\n%s", plain.Output())
		})
	})

	It("creates, lists, patches, applies and deletes like the other server", func() {
		k := &sandbox{Kubectl: launch.Kubectl{Kubeconfig: plain.Kubeconfig, Home: plain.DataDir + "-home", Namespace: "default"}}
		k.run("create", "cm", "first", "--from-literal=a=1")
		follow := k.start("get", "cm", "-w", "--output-watch-events")
		Eventually(follow).Should(gbytes.Say(`ADDED +first +1`))
		k.run("patch", "cm", "first", "-p", `{"data":{"b":"2"}}`)
		Eventually(follow).Should(gbytes.Say(`MODIFIED +first +2`))
		k.pipe(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"second"},"data":{"c":"3"}}`, "apply", "--server-side", "-f", "-")
		Eventually(follow).Should(gbytes.Say(`ADDED +second +1`))
		Expect(k.field("{.items[*].metadata.name}", "cm")).To(Equal("first second"))
		Expect(k.field("{.metadata.managedFields[*].operation}", "cm", "second", "--show-managed-fields")).To(Equal("Apply"))
		k.run("delete", "cm", "first")
		Eventually(follow).Should(gbytes.Say(`DELETED +first`))
	})

	It("sends the same events to each of many equal watches", func(ctx SpecContext) {
		const watches = 20 // more than share a watch by default
		plainClient, err := kubernetes.NewForConfig(plain.Config)
		Expect(err).NotTo(HaveOccurred())
		configMaps := plainClient.CoreV1().ConfigMaps("default")
		list, err := configMaps.List(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		var all []watch.Interface
		for range watches {
			w, err := configMaps.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(w.Stop)
			all = append(all, w)
		}
		created, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "watched"}}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		patched, err := configMaps.Patch(ctx, created.Name, types.MergePatchType, []byte(`{"data":{"a":"1"}}`), metav1.PatchOptions{})
		Expect(err).NotTo(HaveOccurred())
		for _, w := range all {
			for _, want := range []watch.Event{{Type: watch.Added, Object: created}, {Type: watch.Modified, Object: patched}} {
				Eventually(ctx, w.ResultChan()).Should(Receive(Equal(want)))
			}
		}
	})
})
