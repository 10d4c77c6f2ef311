package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"svc.dev/svc/test/launch"
)

// data is a data directory whose release changes.
type data struct {
	dir    string
	server *launch.Server
}

func newData() *data {
	GinkgoHelper()
	dir, err := launch.TempDir()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, dir)
	d := &data{dir: filepath.Join(dir, "data")}
	DeferCleanup(d.stop)
	return d
}

func (d *data) start(ctx context.Context, flags ...string) {
	GinkgoHelper()
	d.startWithControllers(ctx, launch.WithoutControllers(flags...)...)
}

func (d *data) startWithControllers(ctx context.Context, flags ...string) {
	GinkgoHelper()
	d.stop()
	var err error
	d.server, err = launch.Up(ctx, d.dir, flags...)
	Expect(err).NotTo(HaveOccurred())
}

func (d *data) stop() {
	GinkgoHelper()
	if d.server != nil {
		_, err := d.server.Stop(launch.Patience)
		Expect(err).NotTo(HaveOccurred())
		d.server = nil
	}
}

// refused starts a release that must not serve the data, and returns what it prints.
func (d *data) refused(ctx context.Context, flags ...string) string {
	GinkgoHelper()
	d.stop()
	port, err := launch.FreePort()
	Expect(err).NotTo(HaveOccurred())
	args := append([]string{"up", "--data-dir=" + d.dir, "--secure-port=" + port, "--node=false"}, launch.WithoutControllers(flags...)...)
	out, err := exec.CommandContext(ctx, os.Getenv("SVC"), args...).CombinedOutput()
	Expect(err).To(HaveOccurred(), "%s", out)
	return string(out)
}

// migrate runs svc storage migrate and returns its output and exit code.
func (d *data) migrate(ctx context.Context, args ...string) (string, int) {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, os.Getenv("SVC"), append([]string{"storage", "migrate", "--svcconfig=" + d.server.Kubeconfig}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		Expect(err).To(BeAssignableToTypeOf(&exec.ExitError{}))
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// send sends a request with a body in JSON, which must succeed.
func (d *data) send(ctx context.Context, method, path, body string) object {
	GinkgoHelper()
	resp, err := launch.Send(ctx, d.server.Config, launch.Request{Method: method, Path: path, ContentType: "application/json", Body: body})
	Expect(err).NotTo(HaveOccurred())
	Expect(resp.Status).To(And(BeNumerically(">=", 200), BeNumerically("<", 300)), resp.Body)
	return parse(resp.Body)
}

var _ = Describe("the release of a data directory", func() {
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	const services, classes = "/api/v1/namespaces/default/services", "/apis/storage.k8s.io/v1/volumeattributesclasses"

	It("moves to newer releases, and back by one", func(ctx SpecContext) {
		d := newData()
		d.start(ctx, "--release=1.28")
		d.send(ctx, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"},"data":{"a":"b"}}`)
		d.start(ctx, "--release=1.31")
		d.send(ctx, "POST", services, `{"metadata":{"name":"a"},"spec":{"ports":[{"port":80}],"trafficDistribution":"PreferClose"}}`)
		d.start(ctx, "--release=1.30")
		Expect(d.send(ctx, "GET", "/api/v1/namespaces/default/configmaps/a", "")).To(HaveKeyWithValue("data", HaveKeyWithValue("a", "b")))
		Expect(d.send(ctx, "GET", services+"/a", "")).To(HaveKeyWithValue("spec", HaveKeyWithValue("trafficDistribution", "PreferClose")))
	})

	It("goes back further only if nothing is lost, and says what would be", func(ctx SpecContext) {
		d := newData()
		d.start(ctx, "--release=1.37")
		d.send(ctx, "POST", services, `{"metadata":{"name":"a"},"spec":{"ports":[{"port":80}],"trafficDistribution":"PreferClose"}}`)
		d.send(ctx, "POST", classes, `{"metadata":{"name":"gold"},"driverName":"csi.example.com","parameters":{"a":"b"}}`)
		d.send(ctx, "POST", definitions, `{"metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Cluster","names":{"plural":"things","kind":"Thing"},"versions":[{"name":"v1","served":true,"storage":true,`+
			`"selectableFields":[{"jsonPath":".a"}],"schema":{"openAPIV3Schema":{"type":"object","properties":{"a":{"type":"string"}}}}}]}}`)
		Expect(d.refused(ctx, "--release=1.16")).To(MatchRegexp(
			`(?m)^svc up: .*--release: 1\.16 cannot keep what release 1\.37 has written: services default/a \(spec\.trafficDistribution\), volumeattributesclasses\.storage\.k8s\.io gold \(the kind\), ` +
				`customresourcedefinitions\.apiextensions\.k8s\.io things\.example\.com \(spec\.versions\[0\]\.selectableFields\); use --release=1\.36 or newer, where "svc storage migrate --release=1\.16" lists what to delete or change first$`))

		d.start(ctx, "--release=1.36")
		// It is read in the group events.k8s.io, and its kind is of the core group.
		d.send(ctx, "POST", "/api/v1/namespaces/default/events", `{"metadata":{"name":"a"},"involvedObject":{"kind":"Service","namespace":"default","name":"a"},"type":"Normal","reason":"A","message":"m"}`)
		out, code := d.migrate(ctx, "--release=1.16")
		Expect(code).To(Equal(2), out)
		Expect(out).NotTo(ContainSubstring("Warning"))
		Expect(out).To(HaveSuffix("release 1.16 would lose:\n  services default/a: spec.trafficDistribution\n" +
			"  volumeattributesclasses.storage.k8s.io gold: the kind\n  customresourcedefinitions.apiextensions.k8s.io things.example.com: spec.versions[0].selectableFields\n"))
		d.send(ctx, "DELETE", definitions+"/things.example.com", "")
		d.send(ctx, "DELETE", classes+"/gold", "")
		resp, err := launch.Send(ctx, d.server.Config, launch.Request{Method: "PATCH", Path: services + "/a", ContentType: "application/merge-patch+json", Body: `{"spec":{"trafficDistribution":null}}`})
		Expect(err).NotTo(HaveOccurred())
		Expect(resp.Status).To(Equal(200), resp.Body)
		out, code = d.migrate(ctx, "--release=1.16")
		Expect(code).To(BeZero(), out)
		Expect(out).To(HaveSuffix("release 1.16 keeps everything\n"))

		d.start(ctx, "--release=1.16")
		Expect(d.send(ctx, "GET", services+"/a", "")).To(HaveKeyWithValue("spec", HaveKeyWithValue("ports", HaveLen(1))))
	})

	It("goes back from a release whose controllers have published the API server's authority", func(ctx SpecContext) {
		d := newData()
		d.startWithControllers(ctx, "--release=1.37")
		Eventually(func(ctx context.Context) any {
			return d.send(ctx, "GET", "/apis/certificates.k8s.io/v1/clustertrustbundles", "")["items"]
		}).WithContext(ctx).Should(HaveLen(1))
		d.startWithControllers(ctx, "--release=1.28")
		Expect(d.send(ctx, "GET", "/version", "")).To(HaveKeyWithValue("minor", "28"))
	})

	It("leaves objects that the newer releases did not serve either", func(ctx SpecContext) {
		const policies = "/apis/policy/v1beta1/podsecuritypolicies"
		d := newData()
		d.start(ctx, "--release=1.24")
		d.send(ctx, "POST", policies, `{"metadata":{"name":"a"},"spec":{"seLinux":{"rule":"RunAsAny"},"runAsUser":{"rule":"RunAsAny"},"supplementalGroups":{"rule":"RunAsAny"},"fsGroup":{"rule":"RunAsAny"}}}`)
		d.start(ctx, "--release=1.27")
		d.start(ctx, "--release=1.25")
		d.start(ctx, "--release=1.24")
		Expect(d.send(ctx, "GET", policies+"/a", "")).To(HaveKey("spec"))
	})

	It("names the flags by which a release serves what would be lost", func(ctx SpecContext) {
		d := newData()
		d.start(ctx, "--release=1.31", "--runtime-config=storage.k8s.io/v1beta1=true")
		d.send(ctx, "POST", "/apis/storage.k8s.io/v1beta1/volumeattributesclasses", `{"metadata":{"name":"gold"},"driverName":"csi.example.com","parameters":{"a":"b"}}`)
		Expect(d.refused(ctx, "--release=1.28")).To(ContainSubstring(
			`volumeattributesclasses.storage.k8s.io gold (the kind); use --release=1.30 --runtime-config=storage.k8s.io/v1alpha1=true, where "svc storage migrate --release=1.28" lists`))
		d.start(ctx, "--release=1.30", "--runtime-config=storage.k8s.io/v1alpha1=true")
		out, code := d.migrate(ctx, "--release=1.28")
		Expect(code).To(Equal(2), out)
		Expect(out).To(HaveSuffix("release 1.28 would lose:\n  volumeattributesclasses.storage.k8s.io gold: the kind\n"))
		d.send(ctx, "DELETE", "/apis/storage.k8s.io/v1alpha1/volumeattributesclasses/gold", "")
		d.start(ctx, "--release=1.28")
	})

	It("stores custom resources in one version", func(ctx SpecContext) {
		d := newData()
		d.start(ctx)
		definition := func(first, second bool) string {
			version := func(name string, storage bool) string {
				stored := "false"
				if storage {
					stored = "true"
				}
				return `{"name":"` + name + `","served":true,"storage":` + stored + `,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}`
			}
			return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Cluster",` +
				`"names":{"plural":"things","kind":"Thing"},"versions":[` + version("v1", first) + "," + version("v2", second) + `]}}`
		}
		d.send(ctx, "POST", definitions, definition(true, false))
		Eventually(func(ctx context.Context) (int, error) {
			resp, err := launch.Send(ctx, d.server.Config, launch.Request{Method: "POST", Path: "/apis/example.com/v1/things", ContentType: "application/json", Body: `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a"}}`})
			return resp.Status, err
		}).WithContext(ctx).Should(Equal(201))
		resp, err := launch.Send(ctx, d.server.Config, launch.Request{Method: "PATCH", Path: definitions + "/things.example.com", ContentType: "application/merge-patch+json", Body: definition(false, true)})
		Expect(err).NotTo(HaveOccurred())
		Expect(resp.Status).To(Equal(200), resp.Body)
		stored := func(ctx context.Context) any {
			return d.send(ctx, "GET", definitions+"/things.example.com", "")["status"].(object)["storedVersions"]
		}
		Eventually(stored).WithContext(ctx).Should(ConsistOf("v1", "v2"))
		Eventually(func(ctx context.Context) (string, int) { return d.migrate(ctx) }).WithContext(ctx).Should(And(
			MatchRegexp(`things\.example\.com +1 +\d\n`), ContainSubstring("customresourcedefinitions things.example.com: the objects are stored in one version now\n")))
		Expect(stored(ctx)).To(ConsistOf("v2"))
	})
})
