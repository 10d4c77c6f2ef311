package source

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"svc.dev/svc/svclet/apifake"
)

var errExpired = apierrors.NewResourceExpired("too old")

// mirrored runs sources with a directory of manifests and an API server.
func mirrored(t *testing.T, server *apifake.Server) (*fixture, string) {
	dir := t.TempDir()
	return run(t, Options{Core: server.Core(t), Path: dir, NodeUID: func(context.Context) (types.UID, error) { return "node-uid", nil }}), dir
}

func write(t *testing.T, path, content string) {
	t.Helper()
	// Like editors and tools: complete files appear by a rename.
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(filepath.Dir(path), "."+filepath.Base(path)), path); err != nil {
		t.Fatal(err)
	}
}

// ready receives the first updates of both sources.
func (r *fixture) ready() {
	for !r.next().Ready {
	}
}

func TestAMirrorPodIsSyncedWithItsStaticPod(t *testing.T) {
	server := apifake.New(t)
	r, dir := mirrored(t, server)
	r.ready()
	path := filepath.Join(dir, "web.yaml")
	write(t, path, web)
	r.expect("file set web-n ready")
	await(t, "it has a mirror", func() bool { return server.Pod("default", "web-n") != nil })
	static, mirror := r.pods["web-n"], server.Pod("default", "web-n")
	if StaticUID(mirror) != static.UID || mirror.UID == static.UID || mirror.Spec.NodeName != "n" {
		t.Errorf("mirror %v", mirror.ObjectMeta)
	}
	if o := mirror.OwnerReferences; len(o) != 1 || o[0].Kind != "Node" || o[0].APIVersion != "v1" || o[0].Name != "n" || o[0].UID != "node-uid" || !*o[0].Controller {
		t.Errorf("owners %v", o)
	}
	await(t, "it is known", func() bool { _, ok := r.Mirror(static); return ok })

	// Another client deletes the mirror.
	server.Remove(mirror)
	await(t, "it is there again", func() bool { p := server.Pod("default", "web-n"); return p != nil && p.UID != mirror.UID })

	// The manifest changes: the mirror is that of the old pod until that has
	// terminated.
	mirror = server.Pod("default", "web-n")
	write(t, path, strings.ReplaceAll(web, "img", "img:2"))
	r.expect("file set web-n removed web-n ready")
	if got := server.Pod("default", "web-n"); got.UID != mirror.UID {
		t.Error("the mirror is replaced before its pod has ended")
	}
	r.Released(static)
	static = r.pods["web-n"]
	if static == nil {
		static, _ = r.Pod(r.Sources.Pods()[0].UID)
	}
	await(t, "the mirror is the new pod's", func() bool {
		p := server.Pod("default", "web-n")
		return p != nil && StaticUID(p) == static.UID
	})

	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	r.expect("file removed web-n ready")
	if server.Pod("default", "web-n") == nil {
		t.Error("the mirror is gone before its pod has ended")
	}
	r.Released(static)
	await(t, "the mirror is gone", func() bool { return server.Pod("default", "web-n") == nil })
}

func TestMirrorsOfUnwantedPodsAreDeleted(t *testing.T) {
	server := apifake.New(t)
	server.Put(bound("old-n", func(p *corev1.Pod) { p.Annotations = map[string]string{MirrorAnnotation: "hash"} }))
	r, _ := mirrored(t, server)
	r.ready()
	await(t, "it is gone", func() bool { return server.Pod("ns", "old-n") == nil })
	if len(r.Sources.Pods()) != 0 {
		t.Error("a mirror is wanted")
	}
}

func TestMirrorsAreCreatedOnceTheAPIServerAnswers(t *testing.T) {
	server := apifake.New(t)
	var mu sync.Mutex
	away := true
	server.Fail(func(req apifake.Request) error {
		mu.Lock()
		defer mu.Unlock()
		if away && req.Verb == "create" {
			return errors.New("no")
		}
		return nil
	})
	r, dir := mirrored(t, server)
	r.ready()
	write(t, filepath.Join(dir, "web.yaml"), web)
	r.expect("file set web-n ready")
	await(t, "it was tried", func() bool { return len(server.Requests()) > 0 })
	mu.Lock()
	away = false
	mu.Unlock()
	await(t, "it has a mirror", func() bool { return server.Pod("default", "web-n") != nil })
}

func TestAPodThatIsNotAMirrorIsNotChanged(t *testing.T) {
	server := apifake.New(t)
	other := server.Put(bound("web-n", func(p *corev1.Pod) { p.Namespace = "default"; p.Spec.NodeName = "m" }))
	r, dir := mirrored(t, server)
	r.ready()
	write(t, filepath.Join(dir, "web.yaml"), web)
	r.expect("file set web-n ready")
	await(t, "a mirror was tried", func() bool { return len(server.Requests()) > 0 })
	if got := server.Pod("default", "web-n"); got == nil || got.UID != other.GetUID() {
		t.Error("it is gone")
	}
}

// TestAMirrorHasTheNameTheNamespaceAndTheUIDOfItsStaticPod: any client that may create pods can
// set the annotation.
func TestAMirrorHasTheNameTheNamespaceAndTheUIDOfItsStaticPod(t *testing.T) {
	static := bound("web-n", func(p *corev1.Pod) { p.UID, p.Annotations = "hash", map[string]string{SourceAnnotation: File} })
	fromAPI := bound("web-n", func(p *corev1.Pod) { p.UID, p.Annotations = "hash", map[string]string{SourceAnnotation: API} })
	for _, c := range []struct {
		name   string
		of     *corev1.Pod
		change func(*corev1.Pod)
		want   bool
	}{
		{"all are equal", static, func(*corev1.Pod) {}, true},
		{"another name", static, func(p *corev1.Pod) { p.Name = "fake" }, false},
		{"another namespace", static, func(p *corev1.Pod) { p.Namespace = "evil" }, false},
		{"another UID", static, func(p *corev1.Pod) { p.Annotations[MirrorAnnotation] = "other" }, false},
		{"no annotation", static, func(p *corev1.Pod) { p.Annotations = nil }, false},
		{"a pod of the API", fromAPI, func(*corev1.Pod) {}, false},
	} {
		mirror := bound("web-n", func(p *corev1.Pod) { p.Annotations = map[string]string{MirrorAnnotation: "hash"} })
		c.change(mirror)
		m := newMirrors(Options{})
		m.observed(mirror)
		if _, found := m.of(c.of); found != c.want {
			t.Errorf("%s: it is the mirror: %v", c.name, found)
		}
		m.queue.ShutDown()
	}
}
