package volume

import (
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// bundleWith returns a bundle with certificates, of which only the PEM matters here.
func bundleWith(certificates ...string) *certificatesv1.ClusterTrustBundle {
	b := &certificatesv1.ClusterTrustBundle{}
	for _, c := range certificates {
		b.Spec.TrustBundle += "text\n" + string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"a": "b"}, Bytes: []byte(c)}))
	}
	return b
}

// certificatesIn returns those of a file, which must consist of them.
func certificatesIn(t *testing.T, file []byte) []string {
	t.Helper()
	var all []string
	length := 0
	for block, rest := pem.Decode(file); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			t.Errorf("block %v", block)
		}
		all = append(all, string(block.Bytes))
		length += len(pem.EncodeToMemory(block))
	}
	if length != len(file) {
		t.Errorf("text between the blocks: %s", file)
	}
	return all
}

func TestAFileOfTrustAnchorsHasEachOnceAndNothingElse(t *testing.T) {
	source := &corev1.ClusterTrustBundleProjection{SignerName: ptr.To("example.com/s")}
	file, err := trustAnchors(source, []*certificatesv1.ClusterTrustBundle{bundleWith("1", "2"), bundleWith("2", "3")}, "pod")
	must(t, err)
	got := certificatesIn(t, file)
	slices.Sort(got)
	if !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("got %q", got)
	}
}

func TestTheOrderOfTrustAnchorsIsThatOfThePod(t *testing.T) {
	source := &corev1.ClusterTrustBundleProjection{SignerName: ptr.To("example.com/s")}
	order := func(pod string, bundles ...*certificatesv1.ClusterTrustBundle) []string {
		file, err := trustAnchors(source, bundles, pod)
		must(t, err)
		return certificatesIn(t, file)
	}
	orders := map[string]bool{}
	for i := range 50 {
		pod := fmt.Sprint("pod", i)
		first := order(pod, bundleWith("1", "2", "3"))
		if again := order(pod, bundleWith("3"), bundleWith("2", "1")); !slices.Equal(first, again) {
			t.Errorf("%q, then %q", first, again)
		}
		with := order(pod, bundleWith("1", "2", "3", "4"))
		if without := slices.DeleteFunc(with, func(c string) bool { return c == "4" }); !slices.Equal(first, without) {
			t.Errorf("%q, and with another one %q", first, without)
		}
		orders[strings.Join(first, "")] = true
	}
	if len(orders) < 2 {
		t.Error("all pods have the same order")
	}
}

func TestAMissingTrustBundleIsAnErrorThatNamesItUnlessItIsOptional(t *testing.T) {
	named := corev1.ClusterTrustBundleProjection{Name: ptr.To("anchors")}
	signed := corev1.ClusterTrustBundleProjection{SignerName: ptr.To("example.com/s")}
	for want, source := range map[string]corev1.ClusterTrustBundleProjection{
		`while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io "anchors" not found`:                named,
		`combination of signerName and labelSelector matched zero ClusterTrustBundles: signerName is "example.com/s"`: signed,
	} {
		if _, err := trustAnchors(&source, nil, "pod"); err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		source.Optional = ptr.To(true)
		if file, err := trustAnchors(&source, nil, "pod"); err != nil || file == nil || len(file) > 0 {
			t.Errorf("optional: %q, %v", file, err)
		}
	}
}

func TestTrustBundlesAndCertificatesAreProjected(t *testing.T) {
	h := newFixture(t)
	h.objects.bundles = []*certificatesv1.ClusterTrustBundle{bundleWith("1")}
	pod := podOf(volumeOf("tls", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: ptr.To[int32](0o440), Sources: []corev1.VolumeProjection{
		{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{Name: ptr.To("anchors"), Path: "ca.pem"}},
		{PodCertificate: &corev1.PodCertificateProjection{CredentialBundlePath: "bundle.pem", KeyPath: "key.pem", CertificateChainPath: "chain.pem"}},
	}}}))
	if _, err := h.Mount(t.Context(), pod); err == nil || !strings.HasSuffix(err.Error(), "credential bundle is not issued yet") {
		t.Fatalf("before it is issued: %v", err)
	}
	h.objects.key, h.objects.chain = "key\n", "chain\n"
	mounted, err := h.Mount(t.Context(), pod)
	must(t, err)
	read := func(name string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(mounted["tls"].HostPath, name))
		must(t, err)
		return string(data)
	}
	if got := certificatesIn(t, []byte(read("ca.pem"))); !slices.Equal(got, []string{"1"}) {
		t.Errorf("ca.pem: %q", got)
	}
	for name, want := range map[string]string{"bundle.pem": "key\nchain\n", "key.pem": "key\n", "chain.pem": "chain\n"} {
		if got := read(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
		if info, err := os.Stat(filepath.Join(mounted["tls"].HostPath, name)); err != nil || info.Mode() != 0o440 {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
	h.objects.bundles = append(h.objects.bundles, bundleWith("2"))
	h.objects.key = "new\n"
	must(t, h.Refresh(t.Context(), pod))
	if got := certificatesIn(t, []byte(read("ca.pem"))); len(got) != 2 || read("bundle.pem") != "new\nchain\n" {
		t.Errorf("after a change: %q, %q", got, read("bundle.pem"))
	}
	// Without a certificate, after a restart of the agent, the other sources are refreshed.
	h.objects.key, h.objects.bundles = "", h.objects.bundles[:1]
	_, err = h.Mount(t.Context(), pod)
	must(t, err)
	if got := certificatesIn(t, []byte(read("ca.pem"))); len(got) != 1 || read("bundle.pem") != "new\nchain\n" || read("key.pem") != "new\n" {
		t.Errorf("without a certificate: %q, %q", got, read("bundle.pem"))
	}
	// A file of which the containers' user is known is only for that user.
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To(int64(os.Getuid()))}
	for name, f := range certificateFiles(pod, pod.Spec.Volumes[0].Projected.Sources[1].PodCertificate, nil, nil, 0o644) {
		if f.mode != 0o600 || f.user == nil {
			t.Errorf("%s: mode %v, user %v", name, f.mode, f.user)
		}
	}
}
