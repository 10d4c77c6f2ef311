package records

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	clocktesting "k8s.io/utils/clock/testing"

	"svc.dev/svc/svclet/image/credentials"
)

var (
	alice  = credentials.Login{Username: "alice", Password: "1", Secret: credentials.Secret{Namespace: "a", Name: "s", UID: "1"}}
	bob    = credentials.Login{Username: "bob", Password: "2", Secret: credentials.Secret{Namespace: "b", Name: "s", UID: "2"}}
	node   = credentials.Login{Username: "node", Password: "3"}
	image  = Image{Name: "r.example/app:1", Repository: "r.example/app", Ref: "sha256:1"}
	loaded = Image{Name: "r.example/loaded:1", Repository: "r.example/loaded", Ref: "sha256:2"}
)

func open(t *testing.T, dir string, policy Policy) *Records {
	t.Helper()
	r, err := Open(dir, "svclet.config.k8s.io/v1beta1", policy, clocktesting.NewFakePassiveClock(time.Unix(1000, 0)))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// accessible reports whether a pod with these logins may use an image.
func accessible(t *testing.T, r *Records, image Image, logins ...credentials.Login) bool {
	t.Helper()
	ok, err := r.Accessible(image, func() ([]credentials.Login, error) { return logins, nil })
	if err != nil {
		t.Error(err)
	}
	return ok
}

func pull(t *testing.T, r *Records, image Image, login *credentials.Login) {
	t.Helper()
	if err := r.Begin(image.Name); err != nil {
		t.Fatal(err)
	}
	r.Pulled(image, login)
}

func TestWhichImagesAreVerified(t *testing.T) {
	for _, test := range []struct {
		policy               Policy
		pulled, loaded, list bool // whether a pod without secrets may use the image
	}{
		{Policy{Verification: kubeletconfig.NeverVerify}, true, true, true},
		{Policy{Verification: kubeletconfig.NeverVerifyPreloadedImages}, false, true, true},
		{Policy{Verification: kubeletconfig.NeverVerifyAllowlistedImages, Allowlist: []string{"r.example/team/*", "r.example/one"}}, false, false, true},
		{Policy{Verification: kubeletconfig.AlwaysVerify}, false, false, false},
	} {
		t.Run(string(test.policy.Verification), func(t *testing.T) {
			r := open(t, t.TempDir(), test.policy)
			pull(t, r, image, &alice)
			for of, want := range map[Image]bool{
				image: test.pulled, loaded: test.loaded,
				{Name: "r.example/team/x/y:1", Repository: "r.example/team/x/y", Ref: "sha256:3"}: test.list,
				{Name: "r.example/one:1", Repository: "r.example/one", Ref: "sha256:4"}:           test.list,
			} {
				if got := accessible(t, r, of); got != want {
					t.Errorf("%s is accessible: %t, want %t", of.Name, got, want)
				}
			}
		})
	}
}

func TestWhoMayUseAPulledImage(t *testing.T) {
	renewed, copied, stranger := alice, bob, bob
	renewed.Password = "new"
	copied.Username, copied.Password = alice.Username, alice.Password
	stranger.Secret = alice.Secret
	stranger.Secret.UID = "9" // the secret was made again, with another login
	for _, test := range []struct {
		rule  string
		by    *credentials.Login
		login []credentials.Login
		want  bool
	}{
		{"the secret that pulled it", &alice, []credentials.Login{alice}, true},
		{"the same secret with a new password", &alice, []credentials.Login{renewed}, true},
		{"another secret with the same login", &alice, []credentials.Login{bob, copied}, true},
		{"another login", &alice, []credentials.Login{bob, stranger}, false},
		{"no login", &alice, nil, false},
		{"a login of the node does not count", &alice, []credentials.Login{node}, false},
		{"all, if the node pulled it", &node, nil, true},
		{"all, if it needed no login", nil, []credentials.Login{bob}, true},
	} {
		t.Run(test.rule, func(t *testing.T) {
			dir := t.TempDir()
			pull(t, open(t, dir, Policy{Verification: kubeletconfig.NeverVerifyPreloadedImages}), image, test.by)
			r := open(t, dir, Policy{Verification: kubeletconfig.NeverVerifyPreloadedImages}) // after a restart
			if got := accessible(t, r, image, test.login...); got != test.want {
				t.Errorf("accessible: %t, want %t", got, test.want)
			}
			other := image
			other.Repository = "mirror.example/app"
			if accessible(t, r, other, alice) {
				t.Error("the same image of another registry is accessible")
			}
		})
	}
}

func TestASecretWithAKnownLoginOutlivesTheOtherOne(t *testing.T) {
	r := open(t, t.TempDir(), Policy{Verification: kubeletconfig.AlwaysVerify})
	pull(t, r, image, &alice)
	copied := alice
	copied.Secret = bob.Secret
	if !accessible(t, r, image, copied) {
		t.Fatal("the same login is refused")
	}
	copied.Password = "new"
	if !accessible(t, r, image, copied) {
		t.Error("its secret was not recorded")
	}
}

func TestAccessOfAllPodsStays(t *testing.T) {
	r := open(t, t.TempDir(), Policy{Verification: kubeletconfig.AlwaysVerify})
	pull(t, r, image, &alice)
	pull(t, r, image, nil)
	pull(t, r, image, &alice)
	if !accessible(t, r, image) {
		t.Error("it is not")
	}
}

func TestAPullThatWasCutOffIsVerified(t *testing.T) {
	dir := t.TempDir()
	policy := Policy{Verification: kubeletconfig.NeverVerifyPreloadedImages}
	if err := open(t, dir, policy).Begin(image.Name); err != nil {
		t.Fatal(err)
	}
	// A crash has also left an intent half-written.
	if err := os.WriteFile(filepath.Join(dir, directory, pullingDir, ".sha256-1"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := open(t, dir, policy)
	if accessible(t, r, image, alice) {
		t.Error("before the recovery it counts as preloaded")
	}
	down := errors.New("the runtime is down")
	if err := r.Recover(t.Context(), func(context.Context, string) (string, error) { return "", down }); !errors.Is(err, down) {
		t.Errorf("%v, want %v", err, down)
	}
	if accessible(t, r, image) {
		t.Error("after a failed recovery it counts as preloaded")
	}
	if err := r.Recover(t.Context(), func(_ context.Context, name string) (string, error) {
		if name != image.Name {
			t.Errorf("asked for %s", name)
		}
		return image.Ref, nil
	}); err != nil {
		t.Fatal(err)
	}
	if accessible(t, r, image, alice) {
		t.Error("after the recovery it counts as preloaded")
	}
	pull(t, r, image, &alice)
	if !accessible(t, r, image, alice) {
		t.Error("the pull was not recorded")
	}
	if entries, err := os.ReadDir(filepath.Join(dir, directory, pullingDir)); err != nil || len(entries) > 0 {
		t.Errorf("intents are left: %v, %v", entries, err)
	}
}

func TestAFailedPullLeavesAPreloadedImageAlone(t *testing.T) {
	r := open(t, t.TempDir(), Policy{Verification: kubeletconfig.NeverVerifyPreloadedImages})
	for range 2 {
		if err := r.Begin(loaded.Name); err != nil {
			t.Fatal(err)
		}
	}
	r.Failed(loaded.Name)
	if accessible(t, r, loaded) {
		t.Error("during a pull it counts as preloaded")
	}
	r.Failed(loaded.Name)
	if !accessible(t, r, loaded) {
		t.Error("afterwards it counts as pulled")
	}
}

func TestADamagedRecordMakesPodsVerify(t *testing.T) {
	r := open(t, t.TempDir(), Policy{Verification: kubeletconfig.NeverVerifyPreloadedImages})
	pull(t, r, image, nil)
	if err := os.WriteFile(r.path(pulledDir, image.Ref), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if accessible(t, r, image) {
		t.Error("it is accessible")
	}
	pull(t, r, image, nil)
	if !accessible(t, r, image) {
		t.Error("a pull does not replace it")
	}
}

func TestRecordsOfImagesThatAreGoneAreRemoved(t *testing.T) {
	r := open(t, t.TempDir(), Policy{Verification: kubeletconfig.NeverVerifyPreloadedImages})
	pull(t, r, image, &alice)
	pull(t, r, loaded, &alice)
	for _, step := range []struct {
		listed time.Time
		gone   bool
	}{{time.Unix(1000, 0), false}, {time.Unix(1001, 0), true}} {
		if err := r.Prune([]string{loaded.Ref}, step.listed); err != nil {
			t.Fatal(err)
		}
		for of, gone := range map[Image]bool{image: step.gone, loaded: false} {
			if got := !exists(r.path(pulledDir, of.Ref)); got != gone {
				t.Errorf("listed at %s, the record of %s is gone: %t, want %t", step.listed, of.Name, got, gone)
			}
		}
	}
}

func TestARecordOfAPullAfterTheImagesWereListedStays(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1000, 600e6))
	r, err := Open(t.TempDir(), "svclet.config.k8s.io/v1beta1", Policy{Verification: kubeletconfig.NeverVerifyPreloadedImages}, clock)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []time.Time{clock.Now(), time.Unix(2000, 0)} { // the second pull adds no credentials
		clock.SetTime(at)
		pull(t, r, image, &alice)
		if err := r.Prune(nil, at.Add(-100*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if !exists(r.path(pulledDir, image.Ref)) {
			t.Errorf("the record of the pull at %s is gone", at)
		}
	}
}

func TestEntriesOfTheAllowlist(t *testing.T) {
	for entry, valid := range map[string]bool{
		"r.example/app": true, "r.example/team/*": true, "r.example/*": true, "r.example:5000/*": true, "docker.io/library/busybox": true,
		"r.example/app:1": false, "r.example/app@sha256:1": false, "busybox": false, "r.example/*/app": false, "r.example/app*": false, "*": false, "": false, "/*": false,
	} {
		if err := CheckAllowed(entry); (err == nil) != valid {
			t.Errorf("%q: %v", entry, err)
		}
	}
}
