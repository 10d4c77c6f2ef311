package binding

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/volume"

	"svc.dev/svc/internal/golden"
)

// TestScripts runs the scripts of testdata. The commands:
//
//	class NAME [provisioner=P] [wait] [default] [age=HOURS]
//	volume NAME [class=C] [size=S] [modes=RWO,RWX] [claim=NAME[:UID]] [phase=P] [policy=P] [attributes=CLASS] [provisioned] [ours] [block] [deleting] [taken]
//	claim NAME [class=C] [size=S] [modes=M] [volume=V] [attributes=CLASS] [bound] [selected=NODE] [phase=P] [block] [deleting]
//	pod NAME                       a pod without a node that uses the claim
//	plan claim|volume NAME         prints the plan
//
// The UID of a claim is its name, unless a volume names another one.
func TestScripts(t *testing.T) {
	golden.Run(t, func(t *testing.T) golden.Handler {
		w := &world{t: t, taken: map[string]bool{}, classes: map[string]*storagev1.StorageClass{}, volumes: map[string]*corev1.PersistentVolume{}, claims: map[string]*corev1.PersistentVolumeClaim{}}
		return w.handle
	})
}

type world struct {
	t       *testing.T
	classes map[string]*storagev1.StorageClass
	volumes map[string]*corev1.PersistentVolume
	taken   map[string]bool
	claims  map[string]*corev1.PersistentVolumeClaim
	pod     *corev1.Pod
}

func (w *world) handle(c golden.Command) string {
	o := options{}
	for _, arg := range c.Args[1:] {
		key, value, _ := strings.Cut(arg, "=")
		o[key] = value
	}
	name := c.Args[0]
	switch c.Name {
	case "class":
		w.classes[name] = o.class(w.t, name)
	case "volume":
		w.volumes[name] = o.volume(w.t, name)
		if o.has("taken") {
			w.taken[name] = true
		}
	case "claim":
		w.claims[name] = o.claim(name)
	case "pod":
		w.pod = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}
	case "plan":
		if name == "volume" {
			return w.planVolume(c.Args[1])
		}
		return w.planClaim(c.Args[1])
	default:
		w.t.Fatalf("unknown command %q", c.Name)
	}
	return ""
}

func (w *world) planClaim(name string) string {
	claim := w.claims[name]
	s := ClaimState{Claim: claim, Volume: w.volumes[claim.Spec.VolumeName], Class: w.classes[volume.GetPersistentVolumeClaimClass(claim)], Waiting: w.pod}
	var stock Stock
	for _, pv := range w.volumes {
		if ref := pv.Spec.ClaimRef; ref != nil && ref.Name == claim.Name {
			s.Candidates = append(s.Candidates, pv)
		}
		if !w.taken[pv.Name] {
			stock.Set(pv)
		}
	}
	if pv := stock.Take(claim); pv != nil {
		s.Candidates = append(s.Candidates, pv)
	}
	var classes []*storagev1.StorageClass
	for _, class := range w.classes {
		classes = append(classes, class)
	}
	s.Default = Default(classes)
	p := Claim(s)
	var out []string
	if p.Class != "" {
		out = append(out, "class "+p.Class)
	}
	if p.Bind != nil {
		out = append(out, "bind to "+p.Bind.Name)
	}
	if p.Provisioner != "" {
		out = append(out, "provisioner "+p.Provisioner)
	}
	return printed(out, string(p.Phase), p.Event)
}

func (w *world) planVolume(name string) string {
	s := VolumeState{Volume: w.volumes[name]}
	if ref := s.Volume.Spec.ClaimRef; ref != nil {
		if claim := w.claims[ref.Name]; claim != nil && claim.UID == ref.UID {
			s.Claim = claim
		}
	}
	p := Volume(s)
	var out []string
	if p.Unbind {
		out = append(out, "unbind")
	}
	if p.SyncClaim {
		out = append(out, "sync the claim")
	}
	return printed(out, string(p.Phase), p.Event)
}

func printed(out []string, phase string, e Event) string {
	if phase != "" {
		out = append(out, "phase "+phase)
	}
	if e.Reason != "" {
		out = append(out, fmt.Sprintf("event %s %s: %s", e.Type, e.Reason, e.Message))
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, "\n")
}

// options are the words of a command after the name.
type options map[string]string

func (o options) has(key string) bool { _, ok := o[key]; return ok }

func (o options) or(key, value string) string {
	if given, ok := o[key]; ok {
		return given
	}
	return value
}

func (o options) meta(name string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}
	if o.has("deleting") {
		m.DeletionTimestamp = &metav1.Time{}
	}
	return m
}

func (o options) modes() []corev1.PersistentVolumeAccessMode {
	long := map[string]corev1.PersistentVolumeAccessMode{"RWO": corev1.ReadWriteOnce, "RWX": corev1.ReadWriteMany, "ROX": corev1.ReadOnlyMany, "RWOP": corev1.ReadWriteOncePod}
	var modes []corev1.PersistentVolumeAccessMode
	for mode := range strings.SplitSeq(o.or("modes", "RWO"), ",") {
		modes = append(modes, long[mode])
	}
	return modes
}

func (o options) size() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(o.or("size", "1Gi"))}
}

func (o options) mode() *corev1.PersistentVolumeMode {
	if o.has("block") {
		return new(corev1.PersistentVolumeBlock)
	}
	return nil
}

// attributes returns the name of a VolumeAttributesClass, nil if none is given.
func (o options) attributes() *string {
	if name, ok := o["attributes"]; ok {
		return &name
	}
	return nil
}

func (o options) class(t *testing.T, name string) *storagev1.StorageClass {
	class := &storagev1.StorageClass{ObjectMeta: o.meta(name), Provisioner: o.or("provisioner", "example.com/disks"), VolumeBindingMode: new(storagev1.VolumeBindingImmediate)}
	if o.has("wait") {
		class.VolumeBindingMode = new(storagev1.VolumeBindingWaitForFirstConsumer)
	}
	if o.has("default") {
		class.Annotations[defaultAnnotation] = "true"
	}
	age, err := time.ParseDuration(o.or("age", "0h"))
	if err != nil {
		t.Fatal(err)
	}
	class.CreationTimestamp = metav1.NewTime(time.Unix(1e9, 0).Add(-age))
	return class
}

func (o options) volume(t *testing.T, name string) *corev1.PersistentVolume {
	t.Helper()
	pv := &corev1.PersistentVolume{ObjectMeta: o.meta(name), Spec: corev1.PersistentVolumeSpec{
		StorageClassName: o["class"], Capacity: o.size(), AccessModes: o.modes(), VolumeMode: o.mode(), VolumeAttributesClassName: o.attributes(),
		PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimPolicy(o.or("policy", "Retain")),
	}, Status: corev1.PersistentVolumeStatus{Phase: corev1.PersistentVolumePhase(o.or("phase", "Available"))}}
	if claim, ok := o["claim"]; ok {
		name, uid, _ := strings.Cut(claim, ":")
		pv.Spec.ClaimRef = &corev1.ObjectReference{Name: name, UID: types.UID(uid)}
	}
	if o.has("provisioned") {
		pv.Annotations[volume.AnnDynamicallyProvisioned] = "example.com/disks"
	}
	if o.has("ours") {
		pv.Annotations[volume.AnnBoundByController] = "yes"
	}
	return pv
}

func (o options) claim(name string) *corev1.PersistentVolumeClaim {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: o.meta(name), Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: o.modes(), Resources: corev1.VolumeResourceRequirements{Requests: o.size()}, VolumeName: o["volume"], VolumeMode: o.mode(), VolumeAttributesClassName: o.attributes(),
	}, Status: corev1.PersistentVolumeClaimStatus{Phase: corev1.PersistentVolumeClaimPhase(o.or("phase", "Pending"))}}
	claim.UID = types.UID(name)
	if class, ok := o["class"]; ok {
		claim.Spec.StorageClassName = &class
	}
	if o.has("bound") {
		claim.Annotations[volume.AnnBindCompleted] = "yes"
	}
	if node, ok := o["selected"]; ok {
		claim.Annotations[volume.AnnSelectedNode] = node
	}
	return claim
}
