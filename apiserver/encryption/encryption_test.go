package encryption

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/options/encryptionconfig/controller"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"svc.dev/svc/apiserver/gates"
	"svc.dev/svc/internal/releases"
)

// secretbox returns a configuration with keys of these names.
func secretbox(names ...string) string {
	config := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources: [{resources: [secrets], providers: [{secretbox: {keys: ["
	for _, name := range names {
		key := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(name[:1]), 32))
		config += "{name: " + name + ", secret: " + key + "}, "
	}
	return config + "]}}]}]\n"
}

// file is one that is replaced in a step, as config maps do.
type file string

func (f file) write(t *testing.T, content string) {
	t.Helper()
	next := string(f) + ".next"
	if err := os.WriteFile(next, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, string(f)); err != nil {
		t.Fatal(err)
	}
}

// seal returns what is stored for a secret, and the name of the key.
func seal(t *testing.T, e *Encryption) (stored []byte, key string) {
	t.Helper()
	stored, err := e.TransformerForResource(schema.GroupResource{Resource: kind}).TransformToStorage(t.Context(), []byte("text"), value.DefaultContext("name"))
	if err != nil {
		t.Fatal(err)
	}
	return stored, strings.Split(string(stored), ":")[4]
}

// open reads what is stored.
func open(t *testing.T, e *Encryption, stored []byte) string {
	t.Helper()
	text, _, err := e.TransformerForResource(schema.GroupResource{Resource: kind}).TransformFromStorage(t.Context(), stored, value.DefaultContext("name"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

const kind = "secrets"

func eventually(t *testing.T, rule string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after a minute", rule)
		}
	}
}

func TestAChangedFileIsReadAndABadOneIsReportedAndNotUsed(t *testing.T) {
	before := controller.EncryptionConfigFileChangePollDuration
	controller.EncryptionConfigFileChangePollDuration = 10 * time.Millisecond // instead of a minute
	logger := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
	klog.SetLogger(logger)
	logged := func() string { return logger.GetSink().(ktesting.Underlier).GetBuffer().String() }
	f := file(filepath.Join(t.TempDir(), "encryption.yaml"))
	f.write(t, secretbox("first"))
	e, err := Open(Config{File: string(f), Reload: true}, "server")
	if err != nil {
		t.Fatal(err)
	}
	running := make(chan struct{})
	ctx := t.Context()
	go func() { defer close(running); e.Run(ctx) }()
	t.Cleanup(func() {
		<-running
		e.Close()
		klog.ClearLogger()
		controller.EncryptionConfigFileChangePollDuration = before
	})
	old, key := seal(t, e)
	if key != "first" {
		t.Fatalf("the first key is %q", key)
	}

	f.write(t, secretbox("second", "first"))
	eventually(t, "the new key is used", func() bool { _, key := seal(t, e); return key == "second" })
	if got := open(t, e, old); got != "text" {
		t.Errorf("what the old key has encrypted is %q", got)
	}

	wrongKey := "correct-horse-battery-staple"
	for _, bad := range []struct{ rule, content, says string }{
		{"malformed", "resources: [", "error while parsing file"},
		{"empty", "", "is empty"},
		{"with an unknown field", secretbox("second") + "nope: true\n", "strict decoding error: unknown field"},
		{"with a key of a wrong length", strings.ReplaceAll(secretbox("second"), base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("s"), 32)),
			base64.StdEncoding.EncodeToString([]byte(wrongKey))), "keys[0].secret: Invalid value"},
	} {
		f.write(t, bad.content)
		eventually(t, "a file "+bad.rule+" is reported", func() bool {
			return strings.Contains(logged(), string(f)) && strings.Contains(logged(), bad.says)
		})
		if _, key := seal(t, e); key != "second" {
			t.Errorf("after a file %s, the key is %q", bad.rule, key)
		}
		if got := open(t, e, old); got != "text" {
			t.Errorf("after a file %s: %q", bad.rule, got)
		}
	}
	for _, secret := range []string{wrongKey, base64.StdEncoding.EncodeToString([]byte(wrongKey))} {
		if strings.Contains(logged(), secret) {
			t.Error("a key is in the log")
		}
	}

	failed, succeeded := reloads(t, "failure"), reloads(t, "success")
	if failed == 0 {
		t.Error("the metric counts no failed reload")
	}
	f.write(t, secretbox("third", "second", "first"))
	eventually(t, "a file that is mended is used", func() bool { _, key := seal(t, e); return key == "third" })
	eventually(t, "the reload is counted", func() bool { return reloads(t, "success") == succeeded+1 })
}

func TestVersion1OfKMSPluginsNeedsAGateOnlyAfterRelease28(t *testing.T) {
	if err := gates.Set(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := gates.SetLibraries(28); err != nil {
			t.Error(err)
		}
	})
	f := file(filepath.Join(t.TempDir(), "encryption.yaml"))
	f.write(t, "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n"+
		"resources: [{resources: [secrets], providers: [{kms: {name: plugin, endpoint: 'unix:///nowhere.sock'}}]}]\n")
	for release, works := range map[releases.Release]bool{16: true, 27: true, 28: true, 29: false, 37: false} {
		if err := gates.SetLibraries(release); err != nil {
			t.Fatal(err)
		}
		e, err := Open(Config{File: string(f)}, "server")
		if err == nil {
			e.Close()
		}
		if works != (err == nil) || !works && !strings.Contains(err.Error(), "--feature-gates=KMSv1=true") {
			t.Errorf("%v: %v", release, err)
		}
	}
}

// reloads returns the metric of reloads with a status.
func reloads(t *testing.T, status string) float64 {
	t.Helper()
	counts, err := testutil.GetCounterValuesFromGatherer(legacyregistry.DefaultGatherer,
		"apiserver_encryption_config_controller_automatic_reloads_total", map[string]string{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	return counts[status]
}
