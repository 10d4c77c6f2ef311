package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"svc.dev/svc/test/launch"
)

var _ = Describe("svc releases and svc convert", func() {
	var svc string
	BeforeEach(func() {
		var err error
		svc, err = launch.Binary()
		Expect(err).NotTo(HaveOccurred())
	})

	It("serves by default the kinds that the table has for its release", func(ctx SpecContext) {
		out, err := exec.CommandContext(ctx, svc, "releases", "1.28", "-o", "json").Output()
		Expect(err).NotTo(HaveOccurred())
		var kinds []struct {
			APIVersion, Kind string
			OnByDefault      bool
		}
		Expect(json.Unmarshal(out, &kinds)).To(Succeed())
		table, seen := map[string]bool{}, map[string]bool{}
		for _, k := range kinds {
			if k.OnByDefault {
				table[k.APIVersion+" "+k.Kind] = true
			}
		}

		_, lists, err := client.Discovery().ServerGroupsAndResources()
		Expect(err).NotTo(HaveOccurred())
		connected := map[string]bool{ // bodies of connections, which are no objects
			"v1 NodeProxyOptions": true, "v1 PodAttachOptions": true, "v1 PodExecOptions": true,
			"v1 PodPortForwardOptions": true, "v1 PodProxyOptions": true, "v1 ServiceProxyOptions": true,
		}
		var others []string
		for _, list := range lists {
			for _, r := range list.APIResources {
				gv := schema.GroupVersion{Group: r.Group, Version: r.Version}.String()
				if r.Version == "" {
					gv = list.GroupVersion
				}
				switch name := gv + " " + r.Kind; {
				case table[name]:
					seen[name] = true
				case !connected[name] && !strings.Contains(gv, "example") && !strings.HasPrefix(gv, "metrics.k8s.io/"):
					// Other specs have custom resources, and metrics are no API of kube-apiserver.
					others = append(others, name)
				}
			}
		}
		Expect(others).To(BeEmpty(), "served, and not in the table")
		Expect(seen).To(Equal(table), "not served, and in the table")
	})

	It("finds in a cluster what the next release would refuse, and changes nothing", func(ctx SpecContext) {
		k := newSandbox(ctx)
		const name = "e2e-convert"
		k.pipe(`{"apiVersion":"flowcontrol.apiserver.k8s.io/v1beta2","kind":"FlowSchema","metadata":{"name":"`+name+`"},
			"spec":{"priorityLevelConfiguration":{"name":"global-default"},"matchingPrecedence":9999}}`, "apply", "-f", "-")
		DeferCleanup(func() { k.run("delete", "flowschema", name) })
		before, err := client.FlowcontrolV1beta3().FlowSchemas().Get(ctx, name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())

		cmd := exec.CommandContext(ctx, svc, "convert", "--check", "--cluster", "--release=1.29")
		cmd.Env = append(os.Environ(), "KUBECONFIG="+server.Kubeconfig)
		out, err := cmd.Output()
		Expect(err).To(BeAssignableToTypeOf(&exec.ExitError{}))
		Expect(cmd.ProcessState.ExitCode()).To(Equal(2), string(out)) // the request has been counted
		Expect(string(out)).To(And(
			ContainSubstring("cluster: error: FlowSchema "+name+": apiVersion: in the manifest that was applied: flowcontrol.apiserver.k8s.io/v1beta2 FlowSchema is not served since 1.29; use flowcontrol.apiserver.k8s.io/v1 FlowSchema\n"),
			ContainSubstring("cluster: warning: FlowSchema "+name+": metadata.managedFields: "),
			ContainSubstring("cluster: decide: flowschemas: apiserver_requested_deprecated_apis: clients have requested flowcontrol.apiserver.k8s.io/v1beta2 flowschemas"),
		))
		after, err := client.FlowcontrolV1beta3().FlowSchemas().Get(ctx, name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(after.Generation).To(Equal(before.Generation))
		Expect(after.Spec).To(Equal(before.Spec))
	})
})
