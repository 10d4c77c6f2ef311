package noderestriction

import (
	"context"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/kubernetes/fake"
)

func TestANodeRequestsTokensForTheAudiencesOfItsPodsOnly(t *testing.T) {
	projected := func(audience string) corev1.VolumeSource {
		return corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: audience, Path: "token"}},
		}}}
	}
	claim := func(name string) corev1.VolumeSource {
		return corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
	}
	with := func(name string, volumes ...corev1.VolumeSource) *corev1.Pod {
		p := pod(name, "a", nil)
		for _, v := range volumes {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: v})
		}
		return p
	}
	bound := func(name, volume string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: meta("ns", name), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
	}
	disk := &corev1.GCEPersistentDiskVolumeSource{PDName: "disk"}
	driver := func(name, audience string) *storagev1.CSIDriver {
		return &storagev1.CSIDriver{ObjectMeta: meta("", name), Spec: storagev1.CSIDriverSpec{TokenRequests: []storagev1.TokenRequest{{Audience: audience}}}}
	}
	client := fake.NewClientset(
		with("projected", projected(""), projected("vault")),
		with("claimed", claim("data")), with("inline", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d"}}),
		with("generic", corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}),
		with("lost", claim("none"), projected("vault")), with("plain"),
		with("migrated-claim", claim("disk")), with("migrated-inline", corev1.VolumeSource{GCEPersistentDisk: disk}),
		bound("data", "pv"), bound("generic-v", "pv"), bound("disk", "disk"),
		&corev1.PersistentVolume{ObjectMeta: meta("", "pv"), Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			CSI: &corev1.CSIPersistentVolumeSource{Driver: "d"},
		}}},
		&corev1.PersistentVolume{ObjectMeta: meta("", "disk"), Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeSource: corev1.PersistentVolumeSource{GCEPersistentDisk: disk},
		}},
		driver("d", "storage"), driver("pd.csi.storage.gke.io", "cloud"))
	may := authorizer.AuthorizerFunc(func(_ context.Context, attrs authorizer.Attributes) (authorizer.Decision, string, error) {
		if attrs.GetVerb() == "request-serviceaccounts-token-audience" && attrs.GetAPIGroup() == "" && attrs.GetResource() == "granted" &&
			attrs.GetNamespace() == "ns" && attrs.GetName() == "account" && attrs.GetUser().GetName() == "system:node:a" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
	const refused = "audience %q not found in pod spec volume, system:node:a is not authorized to request tokens for this audience"
	missing := func(audience string) string { return strings.ReplaceAll(refused, "%q", `"`+audience+`"`) }
	for _, test := range []struct {
		rule, pod string
		audiences []string
		any       bool
		want      string
	}{
		{rule: "the API server's", pod: "projected"},
		{rule: "another one of a volume", pod: "projected", audiences: []string{"vault"}},
		{rule: "of no volume", pod: "projected", audiences: []string{"bank"}, want: missing("bank")},
		{rule: "of no volume, in a release without the rule", pod: "projected", audiences: []string{"bank"}, any: true},
		{rule: "the API server's, of a pod without a token", pod: "plain", want: missing("")},
		{rule: "several", pod: "projected", audiences: []string{"", "vault"}, want: "node may only request 0 or 1 audiences"},
		{rule: "of the driver of a claim", pod: "claimed", audiences: []string{"storage"}},
		{rule: "of the driver of an inline volume", pod: "inline", audiences: []string{"storage"}},
		{rule: "of the driver of an ephemeral volume", pod: "generic", audiences: []string{"storage"}},
		{rule: "of the driver to which the volume of a claim is migrated", pod: "migrated-claim", audiences: []string{"cloud"}},
		{rule: "of the driver to which an inline volume is migrated", pod: "migrated-inline", audiences: []string{"cloud"}},
		{rule: "not of the driver to which the volume of a claim is migrated", pod: "migrated-claim", audiences: []string{"storage"}, want: missing("storage")},
		{rule: "of no driver", pod: "claimed", audiences: []string{"vault"}, want: missing("vault")},
		{rule: "of a volume beside a claim that does not exist", pod: "lost", audiences: []string{"vault"}},
		{rule: "of a claim that does not exist", pod: "lost", audiences: []string{"storage"},
			want: `error validating audience "storage": persistentvolumeclaims "none" not found`},
		{rule: "for which the node has the permission", pod: "plain", audiences: []string{"granted"}},
	} {
		p := &plugin{client: client, authorizer: may, restricts: Restrictions{Audiences: !test.any}}
		request := tokenFor("Pod", test.pod, test.pod+"-uid")
		request.Spec.Audiences = test.audiences
		got := validated(t, p, request, "account", "token")
		if got != test.want {
			t.Errorf("%s: %q, want %q", test.rule, got, test.want)
		}
	}
}

// validated returns the text of the refusal of what node a creates, or "".
func validated(t *testing.T, p *plugin, request *authenticationv1.TokenRequest, name, subresource string) string {
	t.Helper()
	a := admission.NewAttributesRecord(request, nil, schema.GroupVersionKind{}, "ns", name,
		schema.GroupVersionResource{Resource: "serviceaccounts"}, subresource, admission.Create, nil, false, &user.DefaultInfo{Name: "system:node:a", Groups: []string{user.NodesGroup}})
	err := p.Admit(t.Context(), a, nil)
	if err == nil {
		if len(request.Spec.Audiences) == 0 {
			request.Spec.Audiences = []string{"https://api"} // which the server sets
		}
		err = p.Validate(t.Context(), a, nil)
	}
	if err == nil {
		return ""
	}
	if !apierrors.IsForbidden(err) {
		return "not forbidden: " + err.Error()
	}
	_, text, _ := strings.Cut(err.Error(), "is forbidden: ")
	return text
}
