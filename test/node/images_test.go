package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/util/cert"

	"svc.dev/svc/svclet/containerd"
	"svc.dev/svc/test/launch"
)

// registries starts registries with an image, which end after the spec.
type registries struct{ program string }

// refusedLogin is how containerd 1 and 2 say that a registry wants a login.
const refusedLogin = "401 Unauthorized|no basic auth credentials"

// registryImage is the image of a registry.
const registryImage = "team/web:1"

func newRegistries(ctx context.Context) registries {
	GinkgoHelper()
	r := registries{filepath.Join(dir, "registry")} // which the next spec does not link again
	build := exec.CommandContext(ctx, "go", "-C", "../../hack/tools/image", "build", "-o", r.program, "./registry")
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
	return r
}

// start returns the address of a registry of an archive's image, with further flags.
func (r registries) start(archive string, flags ...string) string {
	GinkgoHelper()
	process, err := launch.StartCommand(exec.Command(r.program, append(flags, "-image="+registryImage+"="+archive)...))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(process.Kill)
	const begin = "serving at "
	Eventually(process.Output).Should(ContainSubstring(begin))
	_, address, _ := strings.Cut(process.Output(), begin)
	return strings.TrimSpace(address)
}

// startTruncated returns the address of a registry of an image that the node has not, which sends half of
// its layer.
func (r registries) startTruncated() string {
	GinkgoHelper()
	content := make([]byte, 1<<20)
	_, err := rand.Read(content)
	Expect(err).NotTo(HaveOccurred())
	archive := filepath.Join(newDir(), "random.tar")
	image := launch.Image{Name: "localhost/svc/random:1", Files: map[string]launch.ImageFile{"/content": {Content: content}}}
	Expect(image.WriteFile(archive)).To(Succeed())
	return r.start(archive, "-truncate")
}

// makeDir makes a directory. After the spec it is removed, and those of its parents that were
// missing, if they are empty then.
func makeDir(dir string) {
	GinkgoHelper()
	var missing []string
	for parent := filepath.Dir(dir); ; parent = filepath.Dir(parent) {
		_, err := os.Stat(parent)
		if err == nil {
			break
		}
		Expect(err).To(MatchError(fs.ErrNotExist))
		missing = append(missing, parent)
	}
	Expect(os.MkdirAll(dir, 0o755)).To(Succeed())
	DeferCleanup(func() {
		Expect(os.RemoveAll(dir)).To(Succeed())
		for _, parent := range missing {
			err := os.Remove(parent)
			if errors.Is(err, unix.ENOTEMPTY) {
				break
			}
			Expect(err).NotTo(HaveOccurred())
		}
	})
}

var _ = Describe("svc image pull", func() {
	It("pulls images from a registry, and says what is wrong with one", func(ctx SpecContext) {
		all := newRegistries(ctx)
		image := func(args ...string) (string, error) {
			out, err := exec.CommandContext(ctx, svc, append(append([]string{"image"}, args...), "--data-dir="+node.DataDir)...).CombinedOutput()
			return string(out), err
		}
		pull := func(address string) (string, error) { return image("pull", address+"/"+registryImage) }

		server := filepath.Join(dir, "server.tar")

		By("without TLS at a loopback address")
		plain := all.start(server)
		out, err := pull(plain)
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(MatchRegexp(`(?m)^` + plain + `/team/web:1  sha256:[0-9a-f]{64}  [0-9.]+ MiB$`))
		Expect(image("list")).To(ContainSubstring(plain + "/team/web:1 "))
		By("one that it has not, and another one at the same time")
		out, err = image("pull", plain+"/team/web:2", plain+"/"+registryImage)
		Expect(err).To(HaveOccurred())
		Expect(out).To(And(ContainSubstring(plain+"/team/web:1  sha256:"), MatchRegexp("svc image pull: "+plain+"/team/web:2: .*not found")))

		By("with TLS, by a certificate that the machine does not trust")
		own := newDir()
		certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", []net.IP{net.IPv4(127, 0, 0, 1)}, nil)
		Expect(err).NotTo(HaveOccurred())
		authority := filepath.Join(own, "ca.crt")
		Expect(os.WriteFile(authority, certificate, 0o600)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(own, "tls.key"), key, 0o600)).To(Succeed())
		secure := all.start(server, "-certificate="+authority, "-key="+filepath.Join(own, "tls.key"))
		hosts := filepath.Join(containerd.DefaultRegistryDir, secure)
		makeDir(hosts)
		write := func(server, more string) {
			GinkgoHelper()
			Expect(os.WriteFile(filepath.Join(hosts, "hosts.toml"), []byte("server = \""+server+"\"\n[host.\""+server+"\"]\n"+more), 0o644)).To(Succeed())
		}
		write("https://"+secure, "") // without a scheme containerd uses HTTP at a loopback address, or does not verify
		out, err = pull(secure)
		Expect(err).To(HaveOccurred(), out)
		Expect(out).To(And(ContainSubstring("x509: "), ContainSubstring(filepath.Join(hosts, "hosts.toml"))))
		By("which the file for the registry names")
		write("https://"+secure, "  ca = \""+authority+"\"\n")
		out, err = pull(secure)
		Expect(err).NotTo(HaveOccurred(), out)

		By("that wants a login")
		private := all.start(server, "-password=secret")
		out, err = pull(private)
		Expect(err).To(HaveOccurred())
		Expect(out).To(And(MatchRegexp(refusedLogin), ContainSubstring("imagePullSecrets")))

		By("that ends in the middle of a layer")
		out, err = pull(all.startTruncated())
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("is truncated: pull the image again"))
	})
})

var _ = Describe("imagePullSecrets", func() {
	It("log in to a registry, and only for pods that have the right one", func(ctx SpecContext) {
		all := newRegistries(ctx)
		// It is not the image of other specs, which would need the secret then, too (KEP-2535).
		own := images[1]
		own.Files = maps.Clone(own.Files)
		own.Files["/own"] = launch.ImageFile{Content: []byte("own")}
		archive := filepath.Join(newDir(), "own.tar")
		Expect(own.WriteFile(archive)).To(Succeed())
		private := all.start(archive, "-password=secret")
		s := newSpace(ctx)
		for name, password := range map[string]string{"right": "secret", "wrong": "guess"} {
			s.run(ctx, "create", "secret", "docker-registry", name, "--docker-server="+private, "--docker-username=user", "--docker-password="+password)
		}
		pod := func(name, image, more string) string {
			return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {terminationGracePeriodSeconds: 0, containers: [{name: main, image: %q, imagePullPolicy: Always}]%s}\n---\n", name, image, more)
		}
		image := private + "/" + registryImage
		s.apply(ctx, pod("right", image, ", imagePullSecrets: [{name: wrong}, {name: right}]")+pod("wrong", image, ", imagePullSecrets: [{name: wrong}]")+pod("without", image, "")+
			pod("truncated", all.startTruncated()+"/"+registryImage, ""))
		s.await(ctx, "right", beReady())
		for name, why := range map[string]string{"wrong": refusedLogin, "without": refusedLogin, "truncated": "is truncated: pull the image again"} {
			Eventually(func() string {
				return s.run(ctx, "get", "events", "--field-selector=reason=Failed,involvedObject.name="+name, "-o=jsonpath={.items[*].message}")
			}).Should(And(ContainSubstring("Failed to pull image"), MatchRegexp(why)))
		}
		By("also from the account of a pod")
		s.run(ctx, "create", "serviceaccount", "builder")
		s.run(ctx, "patch", "serviceaccount", "builder", `--patch={"imagePullSecrets":[{"name":"right"}]}`)
		s.apply(ctx, pod("account", image, ", serviceAccountName: builder"))
		s.await(ctx, "account", beReady())
	})
})
