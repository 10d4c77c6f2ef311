package e2e

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	kmstypes "k8s.io/apiserver/pkg/storage/value/encrypt/envelope/kmsv2/v2"
	kms "k8s.io/kms/pkg/service"

	"svc.dev/svc/test/launch"
)

// encrypted is a server with a file --encryption-provider-config, which a spec changes
// between its lives.
type encrypted struct {
	*sandbox
	server *launch.Server
	dir    string
}

// newEncrypted starts a server without encryption.
func newEncrypted(ctx context.Context) *encrypted {
	GinkgoHelper()
	dir, err := launch.TempDir()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, dir)
	e := &encrypted{dir: dir}
	e.start(ctx)
	DeferCleanup(func() { e.stop() })
	return e
}

func (e *encrypted) file() string { return filepath.Join(e.dir, "encryption.yaml") }

func (e *encrypted) start(ctx context.Context, flags ...string) {
	GinkgoHelper()
	var err error
	e.server, err = launch.Up(ctx, filepath.Join(e.dir, "data"), launch.WithoutControllers(flags...)...)
	Expect(err).NotTo(HaveOccurred())
	e.sandbox = &sandbox{Kubectl: launch.Kubectl{Kubeconfig: e.server.Kubeconfig, Home: e.server.DataDir + "-home", Namespace: "default"}}
}

func (e *encrypted) stop() {
	GinkgoHelper()
	code, err := e.server.Stop(launch.Patience)
	Expect(err).NotTo(HaveOccurred())
	Expect(code).To(BeZero(), e.server.Output())
}

// restart starts the server again, with providers of secrets in the order given.
func (e *encrypted) restart(ctx context.Context, providers string, flags ...string) {
	GinkgoHelper()
	e.stop()
	Expect(os.WriteFile(e.file(), []byte(encryptionConfig(providers)), 0o600)).To(Succeed())
	e.start(ctx, append([]string{"--encryption-provider-config=" + e.file()}, flags...)...)
}

func encryptionConfig(providers string) string {
	return "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: [{resources: [secrets], providers: [" + providers + "]}]\n"
}

// stored returns the beginnings of the values of all secrets in etcd, up to the name of
// the key.
func (e *encrypted) stored(ctx context.Context) map[string]string {
	GinkgoHelper()
	values := map[string]string{}
	for name, head := range e.values(ctx) {
		if parts := bytes.SplitN(head, []byte(":"), 6); len(parts) == 6 {
			head = bytes.Join(parts[:5], []byte(":"))
		}
		values[name] = string(head[:min(len(head), 40)])
	}
	return values
}

// kmsKeys returns the IDs of the keys of the KMS plugin with which the secrets in etcd are encrypted.
func (e *encrypted) kmsKeys(ctx context.Context) map[string]string {
	GinkgoHelper()
	ids := map[string]string{}
	for name, value := range e.values(ctx) {
		sealed, ok := bytes.CutPrefix(value, []byte("k8s:enc:kms:v2:test:"))
		Expect(ok).To(BeTrue(), name)
		var object kmstypes.EncryptedObject
		Expect(proto.Unmarshal(sealed, &object)).To(Succeed())
		ids[name] = object.KeyID
	}
	return ids
}

// values returns the values of all secrets in etcd, by their names.
func (e *encrypted) values(ctx context.Context) map[string][]byte {
	GinkgoHelper()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"unix:" + filepath.Join(e.dir, "data", "etcd", "etcd.sock")}, DialTimeout: launch.Patience})
	Expect(err).NotTo(HaveOccurred())
	defer etcd.Close()
	response, err := etcd.Get(ctx, "/registry/secrets/", clientv3.WithPrefix())
	Expect(err).NotTo(HaveOccurred())
	values := map[string][]byte{}
	for _, kv := range response.Kvs {
		values[filepath.Base(string(kv.Key))] = kv.Value
	}
	return values
}

// rewrite runs svc storage rewrite.
func (e *encrypted) rewrite(ctx context.Context, args ...string) string {
	GinkgoHelper()
	out, err := exec.CommandContext(ctx, os.Getenv("SVC"), append([]string{"storage", "rewrite", "--svcconfig=" + e.server.Kubeconfig}, args...)...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), "%s", out)
	return string(out)
}

func key(name string) string {
	secret := make([]byte, 32)
	_, err := rand.Read(secret)
	Expect(err).NotTo(HaveOccurred())
	return "{name: " + name + ", secret: " + base64.StdEncoding.EncodeToString(secret) + "}"
}

// contains reports whether a file below a directory contains a text.
func contains(dir, text string) (found bool) {
	GinkgoHelper()
	Expect(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var content []byte
			content, err = os.ReadFile(path)
			found = found || bytes.Contains(content, []byte(text))
		}
		if errors.Is(err, fs.ErrNotExist) { // etcd has temporary files
			return nil
		}
		return err
	})).To(Succeed())
	return found
}

var _ = Describe("encryption at rest", func() {
	It("keeps secrets out of etcd's files, with keys that are rotated", func(ctx SpecContext) {
		const value = "correct-horse-battery-staple"
		e := newEncrypted(ctx)
		e.run("create", "secret", "generic", "before", "--from-literal=a=earlier")

		first, second := key("first"), key("second")
		e.restart(ctx, "{secretbox: {keys: ["+first+"]}}, {identity: {}}")
		e.run("create", "secret", "generic", "after", "--from-literal=a="+value)
		e.run("create", "cm", "plain", "--from-literal=a=visible")
		Expect(e.stored(ctx)).To(And(
			HaveKeyWithValue("before", HavePrefix("k8s\x00")), HaveKeyWithValue("after", "k8s:enc:secretbox:v1:first")))
		Expect(e.rewrite(ctx, "--resource=secrets")).To(MatchRegexp(`RESOURCE +OBJECTS +REWRITTEN\nsecrets +2 +1\n`))
		Expect(e.stored(ctx)).To(HaveKeyWithValue("before", "k8s:enc:secretbox:v1:first"))

		// The stale secrets are those that another provider has encrypted.
		cbc := key("cbc")
		e.restart(ctx, "{aescbc: {keys: ["+cbc+"]}}, {secretbox: {keys: ["+first+"]}}")
		Expect(e.rewrite(ctx, "--resource=secrets")).To(MatchRegexp(`secrets +2 +2\n`))
		Expect(e.stored(ctx)).To(And(HaveLen(2), HaveEach("k8s:enc:aescbc:v1:cbc")))
		Expect(e.field("{.data.a}", "secret", "after")).To(Equal(base64.StdEncoding.EncodeToString([]byte(value))))
		e.restart(ctx, "{secretbox: {keys: ["+first+"]}}, {aescbc: {keys: ["+cbc+"]}}")
		Expect(e.rewrite(ctx, "--resource=secrets")).To(MatchRegexp(`secrets +2 +2\n`))

		e.restart(ctx, "{aesgcm: {keys: ["+second+"]}}, {secretbox: {keys: ["+first+"]}}")
		Expect(e.field("{.data.a}", "secret", "before")).NotTo(BeEmpty())
		Expect(e.rewrite(ctx)).To(And(MatchRegexp(`secrets +2 +2\n`), MatchRegexp(`configmaps +\d+ +0\n`)))
		Expect(e.rewrite(ctx)).To(MatchRegexp(`secrets +2 +0\n`))

		e.restart(ctx, "{aesgcm: {keys: ["+second+"]}}")
		Expect(e.stored(ctx)).To(HaveEach("k8s:enc:aesgcm:v1:second"))
		Expect(e.field("{.data.a}", "secret", "after")).To(Equal(base64.StdEncoding.EncodeToString([]byte(value))))

		e.restart(ctx, "{aesgcm: {keys: ["+key("third")+"]}}")
		Expect(e.fails("", "get", "secret", "after")).To(ContainSubstring("Internal error occurred"))
		e.restart(ctx, "{aesgcm: {keys: ["+second+"]}}")

		etcd := filepath.Join(e.dir, "data", "etcd")
		Expect(contains(etcd, "visible")).To(BeTrue())
		Expect(contains(etcd, value)).To(BeFalse(), "the secret is in a file of etcd")
		Expect(contains(etcd, base64.StdEncoding.EncodeToString([]byte(value)))).To(BeFalse())
	})

	It("has no secret under an earlier key after a StorageVersionMigration", func(ctx SpecContext) {
		e := newEncrypted(ctx)
		flags := []string{"--release=1.37", "--controllers=storageversionmigrator"}
		first, second := key("first"), key("second")
		e.restart(ctx, "{secretbox: {keys: ["+first+"]}}", flags...)
		manifests := ""
		for i := range 600 {
			manifests += fmt.Sprintf("---\n{apiVersion: v1, kind: Secret, metadata: {name: s%d}}\n", i)
		}
		e.pipe(manifests, "create", "-f", "-")
		Expect(e.stored(ctx)).To(And(HaveLen(600), HaveEach("k8s:enc:secretbox:v1:first")))

		e.restart(ctx, "{secretbox: {keys: ["+second+", "+first+"]}}", flags...)
		e.pipe("{apiVersion: storagemigration.k8s.io/v1, kind: StorageVersionMigration, metadata: {name: secrets}, spec: {resource: {resource: secrets}}}", "create", "-f", "-")
		Eventually(e.out("", "get", "storageversionmigrations", "secrets", "-o", "jsonpath={.status.conditions[*].message}")).Should(Equal("Migration completed Migration completed"))
		Expect(e.stored(ctx)).To(And(HaveLen(600), HaveEach("k8s:enc:secretbox:v1:second")))

		e.restart(ctx, "{secretbox: {keys: ["+second+"]}}", flags...)
		Expect(rows(e.run("get", "secrets", "--no-headers"))).To(HaveLen(600))
	})

	It("encrypts with the keys of a KMS plugin, without which it is not ready", func(ctx SpecContext) {
		e := newEncrypted(ctx)
		socket := filepath.Join(e.dir, "kms.sock")
		plugin := newPlugin("1")
		stop := plugin.serve(socket)
		providers := "{kms: {apiVersion: v2, name: test, endpoint: 'unix://" + socket + "', timeout: 10s}}, {identity: {}}"
		e.restart(ctx, providers)
		e.run("create", "secret", "generic", "sealed", "--from-literal=a=b")
		Expect(e.stored(ctx)).To(HaveKeyWithValue("sealed", HavePrefix("k8s:enc:kms:v2:test")))
		stop()
		Eventually(func() string {
			status, body, err := e.server.Get(ctx, "/readyz?verbose")
			Expect(err).NotTo(HaveOccurred())
			Expect(status).To(Or(Equal(200), Equal(500)))
			return body
		}).Should(ContainSubstring("[-]kms-providers failed"))
		stop = plugin.serve(socket)
		Eventually(e.out("", "get", "secret", "sealed", "-o", "jsonpath={.data.a}")).Should(Equal("Yg=="))

		stop()
	})

	It("uses the new key of a KMS plugin while the server runs, and rewrites what the earlier one encrypts", func(ctx SpecContext) {
		e := newEncrypted(ctx)
		socket := filepath.Join(e.dir, "kms.sock")
		plugin := newPlugin("1")
		defer plugin.serve(socket)()
		providers := "{kms: {apiVersion: v2, name: test, endpoint: 'unix://" + socket + "', timeout: 10s}}"
		e.restart(ctx, providers)
		e.run("create", "secret", "generic", "earlier", "--from-literal=a=b")
		Expect(e.kmsKeys(ctx)).To(Equal(map[string]string{"earlier": "1"}))

		By("changing the key of the plugin")
		plugin.use("2")
		Eventually(func(g Gomega) string {
			status, body, err := e.server.Get(ctx, "/readyz") // asks the plugin every 20 seconds
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(status).To(Equal(200), body)
			e.run("create", "secret", "generic", "later", "--from-literal=a=c")
			defer e.run("delete", "secret", "later")
			return e.kmsKeys(ctx)["later"]
		}).Should(Equal("2"))
		e.run("create", "secret", "generic", "later", "--from-literal=a=c")
		Expect(e.kmsKeys(ctx)).To(Equal(map[string]string{"earlier": "1", "later": "2"}))
		Expect(e.field("{.data.a}", "secret", "earlier")).To(Equal("Yg=="))

		Expect(e.rewrite(ctx, "--resource=secrets")).To(MatchRegexp(`secrets +2 +1\n`))
		Expect(e.kmsKeys(ctx)).To(Equal(map[string]string{"earlier": "2", "later": "2"}))
		Expect(e.rewrite(ctx, "--resource=secrets")).To(MatchRegexp(`secrets +2 +0\n`))

		By("removing the earlier key from the plugin")
		plugin.remove("1")
		e.restart(ctx, providers) // which has no decrypted keys in memory
		Expect(e.field("{.data.a}", "secret", "earlier")).To(Equal("Yg=="))
		Expect(e.field("{.data.a}", "secret", "later")).To(Equal("Yw=="))
	})

	It("has nothing of a KMS plugin in the log, even at -v=9", func(ctx SpecContext) {
		const value = "correct-horse-battery-staple"
		e := newEncrypted(ctx)
		socket := filepath.Join(e.dir, "kms.sock")
		plugin := newPlugin("1")
		defer plugin.serve(socket)()
		providers := "{kms: {apiVersion: v2, name: test, endpoint: 'unix://" + socket + "', timeout: 10s}}"
		e.restart(ctx, providers, "-v=9")
		e.run("create", "secret", "generic", "sealed", "--from-literal=a="+value)
		log := e.server.Output()
		e.restart(ctx, providers, "-v=9") // it has no decrypted keys in memory
		Expect(e.field("{.data.a}", "secret", "sealed")).To(Equal(base64.StdEncoding.EncodeToString([]byte(value))))
		log += e.server.Output()

		By("letting the plugin fail to decrypt")
		plugin.remove("1")
		plugin.use("2")
		e.restart(ctx, providers, "-v=9")
		Expect(e.fails("", "get", "secret", "sealed")).To(ContainSubstring("Internal error occurred"))
		log += e.server.Output()

		Expect(log).To(And(ContainSubstring("/api/v1/namespaces/default/secrets/sealed"), ContainSubstring(`there is no key \"1\"`)), "requests and errors are logged")
		exchanged := plugin.exchanges()
		Expect(len(exchanged)).To(BeNumerically(">=", 4), "what was encrypted and decrypted, and the answers")
		for _, secret := range append(exchanged, []byte(value)) {
			for _, spelt := range spellings(secret) {
				Expect(log).NotTo(ContainSubstring(spelt))
			}
		}
	})

	DescribeTable("refuses a bad configuration with one line", func(ctx SpecContext, config, want string) {
		dir := GinkgoT().TempDir()
		file := filepath.Join(dir, "encryption.yaml")
		Expect(os.WriteFile(file, []byte(config), 0o600)).To(Succeed())
		port, err := launch.FreePort()
		Expect(err).NotTo(HaveOccurred())
		out, err := exec.CommandContext(ctx, os.Getenv("SVC"), "apiserver", "--etcd-servers=http://127.0.0.1:1", "--cert-dir="+dir, "--secure-port="+port,
			"--encryption-provider-config="+file).CombinedOutput()
		Expect(err).To(HaveOccurred())
		Expect(string(out)).To(And(ContainSubstring(want), MatchRegexp(`\A[^\n]*\n\z`)))
	},
		Entry("empty", "", "is empty"),
		Entry("not YAML", "{", "encryption.yaml: yaml: line 1: "),
		Entry("a key of a wrong length", encryptionConfig("{aesgcm: {keys: [{name: a, secret: YQ==}]}}"),
			"resources[0].providers[0].aesgcm.keys[0].secret: Invalid value"),
	)
})

// spellings are the forms in which a log may have bytes.
func spellings(secret []byte) []string {
	return []string{
		string(secret), strings.Trim(strconv.Quote(string(secret)), `"`), base64.StdEncoding.EncodeToString(secret), hex.EncodeToString(secret),
		strings.Trim(fmt.Sprint(secret), "[]"),
	}
}

// plugin is a KMS plugin with keys, by their IDs.
type plugin struct {
	mu      sync.Mutex
	current string
	keys    map[string]cipher.AEAD
	// exchanged is what it has been asked to encrypt and decrypt, and what it has answered.
	exchanged [][]byte
}

func newPlugin(keyID string) *plugin {
	GinkgoHelper()
	p := &plugin{keys: map[string]cipher.AEAD{}}
	p.use(keyID)
	return p
}

// use makes the plugin encrypt with a new key.
func (p *plugin) use(keyID string) {
	GinkgoHelper()
	secret := make([]byte, 32)
	_, err := rand.Read(secret)
	Expect(err).NotTo(HaveOccurred())
	block, err := aes.NewCipher(secret)
	Expect(err).NotTo(HaveOccurred())
	aead, err := cipher.NewGCM(block)
	Expect(err).NotTo(HaveOccurred())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.current, p.keys[keyID] = keyID, aead
}

// remove removes a key.
func (p *plugin) remove(keyID string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.keys, keyID)
}

// exchange notes a request and its answer.
func (p *plugin) exchange(all ...[]byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.exchanged = append(p.exchanged, all...)
}

// exchanges returns what the plugin has been asked to encrypt and decrypt, and its answers.
func (p *plugin) exchanges() [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.exchanged)
}

// key returns a key, by default the current one, with its ID.
func (p *plugin) key(id string) (string, cipher.AEAD, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if id == "" {
		id = p.current
	}
	if p.keys[id] == nil {
		return "", nil, fmt.Errorf("there is no key %q", id)
	}
	return id, p.keys[id], nil
}

// serve serves the plugin at a socket until stop is called.
func (p *plugin) serve(socket string) (stop func()) {
	GinkgoHelper()
	if err := os.Remove(socket); !os.IsNotExist(err) {
		Expect(err).NotTo(HaveOccurred())
	}
	service := kms.NewGRPCService(socket, launch.Patience, p)
	done := make(chan error, 1)
	go func() { done <- service.ListenAndServe() }()
	Eventually(func() error { _, err := os.Stat(socket); return err }).Should(Succeed())
	return func() {
		service.Shutdown()
		Eventually(done).Should(Receive())
	}
}

// Status implements the service.
func (p *plugin) Status(context.Context) (*kms.StatusResponse, error) {
	id, _, err := p.key("")
	return &kms.StatusResponse{Version: "v2", Healthz: "ok", KeyID: id}, err
}

// Encrypt implements the service.
func (p *plugin) Encrypt(_ context.Context, _ string, data []byte) (*kms.EncryptResponse, error) {
	id, key, err := p.key("")
	if err != nil {
		return nil, err
	}
	nonce := make([]byte, key.NonceSize())
	if _, err := rand.Read(nonce); err != nil {
		return nil, err
	}
	sealed := key.Seal(nonce, nonce, data, nil)
	p.exchange(slices.Clone(data), sealed)
	return &kms.EncryptResponse{Ciphertext: sealed, KeyID: id}, nil
}

// Decrypt implements the service.
func (p *plugin) Decrypt(_ context.Context, _ string, req *kms.DecryptRequest) ([]byte, error) {
	_, key, err := p.key(req.KeyID)
	if err != nil {
		return nil, err
	}
	data, err := key.Open(nil, req.Ciphertext[:key.NonceSize()], req.Ciphertext[key.NonceSize():], nil)
	p.exchange(slices.Clone(req.Ciphertext), slices.Clone(data))
	return data, err
}
