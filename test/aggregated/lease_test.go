package aggregated

import (
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("leader election at the host", func() {
	It("is what the component host-lease makes the controllers do, with the rights that it grants", func(ctx SpecContext) {
		const account, user, namespace = "svc-controller-manager", "manager-with-lease", "svc-system"
		roles := rolesOf(render(ctx, "host-lease"), account, user)
		apply(onHost, roles, "apply", "--server-side")
		DeferCleanup(func() { apply(onHost, roles, "delete") })
		atHost := func(args ...string) func() string {
			return func() string {
				stdout, _, _ := onHost.Run(ctx, "", append(args, "-n", namespace)...)
				return stdout
			}
		}
		leader := atHost("get", "lease", account, "-o", "jsonpath={.spec.holderIdentity}")
		Expect(leader()).To(BeEmpty())

		connection := filepath.Join(dir, user)
		Expect(host.authority.Connection(connection, host.config.Host+fleetPath, user)).To(Succeed())
		instead := outsideOfManagersPods(connection)
		instead["leader-elect-resource-namespace"] = namespace
		DeferCleanup(kubectl, onHost, "delete", "lease", account, "-n", namespace) // after the manager's end
		Eventually(out(onHost, "", "auth", "can-i", "get", "leases.coordination.k8s.io/"+account, "-n", namespace, "--as="+user)).Should(Equal("yes\n"))
		// The suite's controllers run with a lease of the fleet.
		runManager(append(manifestArgs(ctx, account, instead, "host-lease"), "--controllers=tokencleaner"))
		Eventually(leader).ShouldNot(BeEmpty())
		Eventually(atHost("get", "events", "--field-selector=involvedObject.kind=Lease", "-o", "jsonpath={.items[*].message}")).Should(ContainSubstring("became leader"))
	})
})
