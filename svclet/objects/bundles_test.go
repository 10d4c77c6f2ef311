package objects

import (
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// podWithSource returns a pod with a projected volume.
func podWithSource(uid string, source corev1.VolumeProjection) *corev1.Pod {
	pod := podWith(uid, "", "")
	pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{source}}}}}
	return pod
}

func podWithBundle(uid string, source *corev1.ClusterTrustBundleProjection) *corev1.Pod {
	return podWithSource(uid, corev1.VolumeProjection{ClusterTrustBundle: source})
}

func bundleOf(signer, trust string, labels map[string]string) *certificatesv1.ClusterTrustBundle {
	return &certificatesv1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: trust},
	}
}

// trust returns the contents of the bundles that a source selects.
func trust(t *testing.T, store *Store, source *corev1.ClusterTrustBundleProjection) string {
	t.Helper()
	bundles, err := store.TrustBundles(t.Context(), source)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, b := range bundles {
		all = append(all, b.Spec.TrustBundle)
	}
	return strings.Join(all, " ")
}

func TestATrustBundleIsWatchedByItsNameWhileAPodNeedsIt(t *testing.T) {
	s := newServer(t)
	source := &corev1.ClusterTrustBundleProjection{Name: ptr.To("anchors")}
	store, changed := newStore(t, s, nil)
	store.Register(podWithBundle("p1", source))
	store.Register(podWithBundle("p2", source))
	if got := trust(t, store, source); got != "" {
		t.Errorf("before there is one: %q", got)
	}
	eventually(t, "a watch", func() bool { return s.watching() == 2 }) // and one of services
	s.put("clustertrustbundles/other", bundleOf("", "x", nil))
	s.put("clustertrustbundles/anchors", bundleOf("", "a", nil))
	if pods := changed.wait(t); !slices.Equal(pods, []types.UID{"p1", "p2"}) {
		t.Errorf("told of %v", pods)
	}
	if got := trust(t, store, source); got != "a" {
		t.Errorf("got %q", got)
	}
	s.put("clustertrustbundles/anchors", bundleOf("", "b", nil))
	changed.wait(t)
	if got := trust(t, store, source); got != "b" {
		t.Errorf("after a change %q", got)
	}
	if n := s.asked("watch clustertrustbundles/anchors"); n != 1 {
		t.Errorf("%d watches", n)
	}
	store.Unregister("p1")
	store.Unregister("p2")
	eventually(t, "only services are watched", func() bool { return s.watching() == 1 })
}

func TestTrustBundlesOfASignerAreSelectedByLabels(t *testing.T) {
	s := newServer(t)
	const signer = "example.com/signer"
	s.put("clustertrustbundles/example.com:signer:live", bundleOf(signer, "live", map[string]string{"stage": "live"}))
	s.put("clustertrustbundles/example.com:signer:test", bundleOf(signer, "test", map[string]string{"stage": "test"}))
	s.put("clustertrustbundles/example.com:other:live", bundleOf("example.com/other", "other", map[string]string{"stage": "live"}))
	live := &corev1.ClusterTrustBundleProjection{SignerName: ptr.To(signer), LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"stage": "live"}}}
	all := &corev1.ClusterTrustBundleProjection{SignerName: ptr.To(signer), LabelSelector: &metav1.LabelSelector{}}
	none := &corev1.ClusterTrustBundleProjection{SignerName: ptr.To(signer)}
	store, changed := newStore(t, s, nil)
	store.Register(podWithBundle("p", live))
	for _, test := range []struct {
		rule   string
		source *corev1.ClusterTrustBundleProjection
		want   string
	}{{"with the labels", live, "live"}, {"an empty selector", all, "live test"}, {"no selector", none, ""}} {
		if got := trust(t, store, test.source); got != test.want {
			t.Errorf("%s: %q, want %q", test.rule, got, test.want)
		}
	}
	eventually(t, "a watch", func() bool { return s.watching() == 2 })
	s.put("clustertrustbundles/example.com:signer:new", bundleOf(signer, "new", map[string]string{"stage": "live"}))
	changed.wait(t)
	if got := trust(t, store, live); got != "live new" {
		t.Errorf("after an addition: %q", got)
	}
	s.remove("clustertrustbundles/example.com:signer:live")
	changed.wait(t)
	if got := trust(t, store, live); got != "new" {
		t.Errorf("after a deletion: %q", got)
	}
}

func TestOlderVersionsOfTrustBundlesAreReadIfTheServerHasNoOthers(t *testing.T) {
	for _, version := range []string{"v1", "v1beta1", "v1alpha1"} {
		t.Run(version, func(t *testing.T) {
			s := newServer(t)
			s.certificates = version
			s.put("clustertrustbundles/anchors", bundleOf("", "a", nil))
			source := &corev1.ClusterTrustBundleProjection{Name: ptr.To("anchors")}
			store, changed := newStore(t, s, nil)
			store.Register(podWithBundle("p", source))
			if got := trust(t, store, source); got != "a" {
				t.Errorf("got %q", got)
			}
			eventually(t, "a watch", func() bool { return s.watching() == 2 })
			s.put("clustertrustbundles/anchors", bundleOf("", "b", nil))
			changed.wait(t)
			if got := trust(t, store, source); got != "b" {
				t.Errorf("after a change %q", got)
			}
		})
	}
}

func TestAServerWithoutTrustBundlesIsAnErrorEvenIfTheyAreOptional(t *testing.T) {
	s := newServer(t)
	s.certificates = "v2"
	source := &corev1.ClusterTrustBundleProjection{Name: ptr.To("anchors"), Optional: ptr.To(true)}
	store, _ := newStore(t, s, nil)
	store.Register(podWithBundle("p", source))
	if _, err := store.TrustBundles(t.Context(), source); err == nil || !strings.HasPrefix(err.Error(), "failed to sync clustertrustbundle cache: ") {
		t.Errorf("got %v", err)
	}
}
