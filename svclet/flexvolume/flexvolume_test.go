package flexvolume

import (
	"context"
	"encoding/base64"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// table is a mount table in memory, and what mount(8) was run with.
type table struct {
	mounted map[string]bool
	run     []string
}

func (m *table) Mounted(path string) (bool, error) {
	if _, err := os.Stat(path); err != nil {
		return false, err
	}
	return m.mounted[path], nil
}

func (m *table) Bind(source, target string) error {
	m.run, m.mounted[target] = append(m.run, "bind "+source+" "+target), true
	return nil
}

func (m *table) Unmount(path string) error {
	m.run = append(m.run, "unmount "+path)
	delete(m.mounted, path)
	return nil
}

func (m *table) command(_ context.Context, args ...string) error {
	m.run = append(m.run, "mount "+strings.Join(args, " "))
	m.mounted[args[len(args)-1]] = true
	return nil
}

type fixture struct {
	*Manager
	t *testing.T
	*table
	dir, calls string
}

// newFixture returns a manager with a driver, a shell script that writes its arguments to a
// file and then does what the cases of body say.
func newFixture(t *testing.T, body string) *fixture {
	t.Helper()
	f := &fixture{t: t, dir: t.TempDir(), table: &table{mounted: map[string]bool{}}}
	f.calls = filepath.Join(f.dir, "calls")
	f.install(body)
	f.restart()
	return f
}

func (f *fixture) install(body string) {
	f.t.Helper()
	program := filepath.Join(f.dir, "exec", "vendor~nfs", "nfs")
	text := "#!/bin/sh\nprintf '%s' \"$1\" >> " + f.calls + "\nfor a in \"$@\"; do [ \"$a\" = \"$1\" ] || printf ' %s' \"$a\" >> " + f.calls + "; done\necho >> " + f.calls +
		"\ncase \"$1\" in\n" + body + "\n*) echo '{\"status\": \"Not supported\"}'; exit 1;;\nesac\n"
	f.must(os.MkdirAll(filepath.Dir(program), 0o755))
	f.must(os.WriteFile(program+".new", []byte(text), 0o755)) //nolint:gosec // a program
	f.must(os.Rename(program+".new", program))
}

// restart is a new agent.
func (f *fixture) restart() {
	f.Manager = New(Options{
		Dir: filepath.Join(f.dir, "exec"), RootDir: f.dir, NodeName: "node-1", Mounter: f.table, MountCommand: f.command,
		Secret: func(_ context.Context, namespace, name string) (*corev1.Secret, error) {
			return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Type: "vendor/nfs", Data: map[string][]byte{"key": []byte(namespace)}}, nil
		},
	})
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// called returns the calls since it was called last.
func (f *fixture) called() []string {
	f.t.Helper()
	text, err := os.ReadFile(f.calls)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		f.t.Fatal(err)
	}
	f.must(os.WriteFile(f.calls, nil, 0o600))
	return strings.Split(strings.TrimSuffix(strings.ReplaceAll(string(text), f.dir, "ROOT"), "\n"), "\n")
}

func (f *fixture) expect(what string, got []string, want ...string) {
	f.t.Helper()
	if !slices.Equal(got, want) {
		f.t.Errorf("%s:\n%s\nwant:\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func volumeOf(uid types.UID) Volume {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: uid}}
	return Volume{Pod: pod, Name: "v", Source: corev1.FlexPersistentVolumeSource{Driver: "vendor/nfs", FSType: "ext4", Options: map[string]string{"share": "a"}}}
}

const optionsOfWeb = `{"kubernetes.io/fsType":"ext4","kubernetes.io/pod.name":"web","kubernetes.io/pod.namespace":"ns","kubernetes.io/pod.uid":"u1",` +
	`"kubernetes.io/pvOrVolumeName":"v","kubernetes.io/readwrite":"rw","kubernetes.io/serviceAccount.name":"","share":"a"}`

const mounts = `init) echo '{"status": "Success", "capabilities": {"attach": false, "supportsMetrics": true}}';;
mount|unmount) echo '{"status": "Success"}';;`

func TestADriverThatDoesNotAttachMountsAndUnmounts(t *testing.T) {
	f := newFixture(t, mounts)
	published, err := f.Publish(t.Context(), volumeOf("u1"))
	f.must(err)
	dir := filepath.Join(f.dir, "pods/u1/volumes/vendor~nfs/v")
	if want := (Published{Path: dir, New: true, Group: true, Relabel: true, Measurable: true}); published != want {
		t.Errorf("%+v, want %+v", published, want)
	}
	f.expect("calls", f.called(), "init", "mount ROOT/pods/u1/volumes/vendor~nfs/v "+optionsOfWeb)
	f.mounted[dir] = true
	published, err = f.Publish(t.Context(), volumeOf("u1"))
	if err != nil || published.New {
		t.Errorf("it is mounted: %+v, %v", published, err)
	}
	f.restart()
	f.must(f.Unpublish(t.Context(), "u1"))
	f.must(f.Unpublish(t.Context(), "u1"))
	f.expect("calls after a restart", f.called(), "init", "unmount ROOT/pods/u1/volumes/vendor~nfs/v")
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left: %v", err)
	}
}

func TestADeviceIsAttachedForTheFirstPodAndDetachedAfterTheLast(t *testing.T) {
	f := newFixture(t, `init) echo '{"status": "Success"}';;
getvolumename) echo '{"status": "Success", "volumeName": "disk/7"}';;
attach) echo '{"status": "Success", "device": "/dev/x"}';;
waitforattach) echo '{"status": "Success", "device": "/dev/x1"}';;
detach) echo '{"status": "Success"}';;`)
	v := volumeOf("u1")
	v.MountOptions = []string{"noatime"}
	_, err := f.Publish(t.Context(), v)
	f.must(err)
	f.expect("calls", f.called(), "init", "getvolumename "+optionsOfWeb, "attach "+optionsOfWeb+" node-1", "waitforattach /dev/x "+optionsOfWeb,
		"mountdevice ROOT/plugins/kubernetes.io/flexvolume/vendor/nfs/mounts/disk~7 /dev/x1 "+optionsOfWeb, "mount ROOT/pods/u1/volumes/vendor~nfs/v "+optionsOfWeb)
	device := filepath.Join(f.dir, "plugins/kubernetes.io/flexvolume/vendor/nfs/mounts/disk~7")
	f.expect("mounts", f.run, "mount -t ext4 -o noatime -- /dev/x1 "+device, "bind "+device+" "+filepath.Join(f.dir, "pods/u1/volumes/vendor~nfs/v"))
	_, err = f.Publish(t.Context(), volumeOf("u2"))
	f.must(err)
	if calls := f.called(); len(calls) != 2 {
		t.Errorf("the device is there already, and the driver is called: %q", calls)
	}
	f.restart()
	f.must(f.Unpublish(t.Context(), "u1"))
	f.expect("calls for the first", f.called(), "init", "unmount ROOT/pods/u1/volumes/vendor~nfs/v")
	f.must(f.Unpublish(t.Context(), "u2"))
	f.expect("calls for the last", f.called(), "unmount ROOT/pods/u2/volumes/vendor~nfs/v",
		"unmountdevice ROOT/plugins/kubernetes.io/flexvolume/vendor/nfs/mounts/disk~7", "detach disk/7 node-1")
	if len(f.mounted) > 0 {
		t.Errorf("still mounted: %v", slices.Collect(maps.Keys(f.mounted)))
	}
}

func TestOptionsHaveTheSecretAndThePodsGroup(t *testing.T) {
	f := newFixture(t, mounts)
	v := volumeOf("u1")
	v.ReadOnly, v.Persistent = true, true
	v.Source.SecretRef = &corev1.SecretReference{Name: "s"}
	v.Pod.Spec.SecurityContext = &corev1.PodSecurityContext{FSGroup: ptr.To[int64](7)}
	options, err := f.options(t.Context(), v)
	f.must(err)
	for key, want := range map[string]string{
		"kubernetes.io/secret/key": base64.StdEncoding.EncodeToString([]byte("ns")), "kubernetes.io/mounterArgs.FsGroup": "7", "kubernetes.io/readwrite": "ro",
	} {
		if options[key] != want {
			t.Errorf("%s is %q, want %q", key, options[key], want)
		}
	}
	v.Source.Driver = "vendor/other"
	if _, err := f.options(t.Context(), v); err == nil || !strings.Contains(err.Error(), "cannot get secret of type vendor/other") {
		t.Error(err)
	}
}

func TestTheFailuresOfADriverAreTold(t *testing.T) {
	for _, test := range []struct{ rule, body, want string }{
		{"of init", `init) echo '{"status": "Failure", "message": "no jq"}';;`, "initializing the FlexVolume driver vendor/nfs: init command failed, status: Failure, reason: no jq"},
		{"of mount", `init) echo '{"status": "Success", "capabilities": {"attach": false}}';; mount) echo '{"status": "Failure", "message": "away"}'; exit 1;;`, "mount command failed, status: Failure, reason: away"},
		{"without JSON", `init) echo oops >&2; exit 3;;`, "init command failed: exit status 3: oops"},
		{"without mount and attach", `init) echo '{"status": "Success", "capabilities": {"attach": false}}';;`, "the FlexVolume driver vendor/nfs supports neither mount nor attach"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			f := newFixture(t, test.body)
			if _, err := f.Publish(t.Context(), volumeOf("u1")); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
			f.must(f.Unpublish(t.Context(), "u1"))
		})
	}
}

func TestADriverThatWasReplacedIsInitializedAgain(t *testing.T) {
	f := newFixture(t, `init) echo '{"status": "Failure"}';;`)
	if _, err := f.Publish(t.Context(), volumeOf("u1")); err == nil {
		t.Error("no error")
	}
	f.install(mounts)
	_, err := f.Publish(t.Context(), volumeOf("u1"))
	f.must(err)
	f.install(mounts + "\n")
	f.called()
	_, err = f.Publish(t.Context(), volumeOf("u2"))
	f.must(err)
	if calls := f.called(); calls[0] != "init" {
		t.Errorf("not initialized: %q", calls)
	}
}

func TestWhatADriverThatIsGoneHasMountedIsUnmounted(t *testing.T) {
	f := newFixture(t, mounts)
	published, err := f.Publish(t.Context(), volumeOf("u1"))
	f.must(err)
	f.must(os.RemoveAll(filepath.Join(f.dir, "exec")))
	f.must(f.Unpublish(t.Context(), "u1"))
	f.expect("mounts", f.run, "unmount "+published.Path)
	if _, err := f.Publish(t.Context(), volumeOf("u1")); err == nil || !strings.Contains(err.Error(), "no volume plugin matched name: vendor/nfs") {
		t.Error(err)
	}
}

func TestNamesOfDriversDoNotLeaveTheirDirectory(t *testing.T) {
	f := newFixture(t, mounts)
	for _, name := range []string{"", "/", "..", "../x", "vendor/..", "vendor/a/b", "vendor/"} {
		if program, err := f.program(name); err == nil {
			t.Errorf("%q is %s", name, program)
		}
	}
}
