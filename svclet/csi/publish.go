package csi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"svc.dev/svc/svclet/objects"
)

// publication is one call of [Manager.Publish].
type publication struct {
	*Manager
	*Volume
	driver *driver
	object *storagev1.CSIDriver
	record record
	// dir is the directory of the record.
	dir     string
	options []string
	// group is the pod's fsGroup if the driver gives files to it: one that can is told the group
	// whatever the CSIDriver's fsGroupPolicy is (SetUpAt of kubelet's CSI plugin).
	group *int64
	// attachment is what the attaching controller has published.
	attachment map[string]string
}

// Publish makes a driver publish a volume for a pod, and waits until a controller has
// attached it. For a volume that is published already it does what has to be repeated:
// tokens are renewed if the driver requires that, and a volume that has grown is expanded. If
// there is nothing to repeat, the driver need not be registered.
func (m *Manager) Publish(ctx context.Context, v Volume) (Published, error) {
	p := publication{Manager: m, Volume: &v, record: v.record()}
	if m.o.Client == nil {
		return Published{}, errors.New("volumes of CSI drivers need an API server")
	}
	for _, name := range []string{p.record.Driver, p.record.Volume} {
		if !isName(name) {
			return Published{}, fmt.Errorf("name %q of a CSI driver or volume cannot be a directory's name", name)
		}
	}
	p.dir = filepath.Join(m.layout.volumes(v.Pod.UID), p.record.Volume)
	if v.PV == nil {
		m.noteInline(v.Pod.UID, p.dir)
	}
	var err error
	if p.object, err = m.csiDriver(ctx, p.record.Driver); err != nil {
		return Published{}, err
	}
	result := Published{Path: m.layout.target(v.Pod.UID, p.record)}
	p.options, result.Labelled = v.mountOptions(p.object, m.o.SELinux)
	done, err := p.isDone(result.Path)
	if err != nil {
		return Published{}, err
	}
	growing := p.growing()
	p.driver, err = m.drivers.get(p.record.Driver)
	switch {
	case err == nil:
		p.record.Measurable = v.PV != nil && p.driver.can(spec.NodeServiceCapability_RPC_GET_VOLUME_STATS)
		if p.driver.can(spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP) {
			p.group = v.group()
		}
	case !done || p.isRepeated() || m.o.Expansion.Due(growing):
		return Published{}, err
	}
	result.Measurable = p.record.Measurable
	if !done || p.isRepeated() {
		if err := p.run(ctx, result.Path, done); err != nil {
			return Published{}, err
		}
	}
	if m.o.Expansion.Due(growing) {
		return result, p.expand(ctx, growing, result.Path)
	}
	return result, nil
}

// isRepeated reports whether a volume that is published is to be published again from time to
// time.
func (p *publication) isRepeated() bool { return ptr.Deref(p.object.Spec.RequiresRepublish, false) }

// lock locks the volume until unlock is called.
func (p *publication) lock() (unlock func()) {
	return p.volumes.lock(p.record.key())
}

// run stages and publishes the volume. done reports whether that has been done before.
func (p *publication) run(ctx context.Context, target string, done bool) error {
	if err := p.checkLifecycle(p.object); err != nil {
		return err
	}
	if err := p.mount(ctx, target, done); err != nil || done {
		return err
	}
	return p.finish(target, p.givesGroup(p.object) && p.group == nil)
}

// mount makes the driver stage and publish the volume.
func (p *publication) mount(ctx context.Context, target string, done bool) (err error) {
	defer p.lock()()
	attachable := p.PV != nil && ptr.Deref(p.object.Spec.AttachRequired, true)
	if !done {
		p.record.Attached = attachable
		p.record.Staged = p.PV != nil && p.driver.can(spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME)
		old, err := readRecord(p.dir)
		if err == nil {
			p.record.Begun = old.Begun
		} else if err := p.checkUnused(); err != nil {
			return err
		}
		if err := p.record.write(p.dir); err != nil {
			return err
		}
	}
	if attachable {
		if p.attachment, err = p.awaitAttached(ctx, p.Pod.UID, p.record); err != nil {
			return err
		}
	}
	if err := p.stage(ctx); err != nil {
		return err
	}
	return p.publish(ctx, target)
}

// ErrInUse is the error of a volume for one pod that another pod uses: kubelet's.
var ErrInUse = errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")

// IsForOnePod reports whether only one pod may use a volume at a time. If the volume has another
// access mode, too, it is not known which one a pod uses.
func IsForOnePod(pv *corev1.PersistentVolume) bool {
	return len(pv.Spec.AccessModes) == 1 && pv.Spec.AccessModes[0] == corev1.ReadWriteOncePod
}

// checkUnused refuses a volume for one pod while another pod has a record of it. The volume is
// locked.
func (p *publication) checkUnused() error {
	if p.PV == nil || !IsForOnePod(p.PV) {
		return nil
	}
	used, err := p.usedByOthers(p.dir, p.record)
	if used {
		return ErrInUse
	}
	return err
}

// isDone reports whether the volume has been published, and finished, already.
func (p *publication) isDone(target string) (bool, error) {
	old, err := readRecord(p.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if old.Driver != p.record.Driver || old.Handle != p.record.Handle {
		return false, fmt.Errorf("volume %s is mounted with the handle %s of CSI driver %s", old.Volume, old.Handle, old.Driver)
	}
	if _, err := p.o.Mounted(target); old.Done != p.boot || errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	p.record = old
	return true, nil
}

// stage stages the volume for all its pods, if the driver does that, unless it has been
// staged.
func (p *publication) stage(ctx context.Context) error {
	if !p.record.Staged {
		return nil
	}
	dir, path := p.layout.stage(p.record.Driver, p.record.Handle), p.layout.staging(p.record.Driver, p.record.Handle)
	old, err := readRecord(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && old.Done == p.boot {
		return nil
	}
	secrets, err := p.secret(ctx, p.PV.Spec.CSI.NodeStageSecretRef)
	if err != nil {
		return err
	}
	staged := record{Driver: p.record.Driver, Handle: p.record.Handle, Volume: p.record.Volume, Block: p.record.Block, Begun: true}
	if err := staged.write(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(path, privateDir); err != nil {
		return err
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = p.driver.NodeStageVolume(call, &spec.NodeStageVolumeRequest{
		VolumeId: p.record.Handle, PublishContext: p.attachment, StagingTargetPath: path,
		VolumeCapability: p.capability(p.driver, p.options, p.group), Secrets: secrets, VolumeContext: p.attributes(),
	})
	if err != nil {
		return fmt.Errorf("NodeStageVolume of CSI driver %s: %w", p.record.Driver, err)
	}
	staged.Done = p.boot
	return staged.write(dir)
}

// publish publishes the volume for the pod.
func (p *publication) publish(ctx context.Context, target string) error {
	request := &spec.NodePublishVolumeRequest{
		VolumeId: p.record.Handle, PublishContext: p.attachment, TargetPath: target, Readonly: p.readOnly(),
		VolumeCapability: p.capability(p.driver, p.options, p.group),
	}
	if p.record.Staged {
		request.StagingTargetPath = p.layout.staging(p.record.Driver, p.record.Handle)
	}
	var err error
	if request.Secrets, err = p.publishSecret(ctx); err != nil {
		return err
	}
	request.VolumeContext = map[string]string{}
	maps.Copy(request.VolumeContext, p.attributes())
	maps.Copy(request.VolumeContext, p.podInfo(p.object))
	if err := p.addTokens(ctx, request); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), privateDir); err != nil {
		return err
	}
	if !p.record.Begun {
		p.record.Begun = true
		if err := p.record.write(p.dir); err != nil {
			return err
		}
	}
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := p.driver.NodePublishVolume(call, request); err != nil {
		return fmt.Errorf("NodePublishVolume of CSI driver %s: %w", p.record.Driver, err)
	}
	if _, err := p.o.Mounted(target); err != nil {
		return fmt.Errorf("CSI driver %s has published nothing: it must see the agent's root directory, at the same path, with mountPropagation Bidirectional: %w", p.record.Driver, err)
	}
	return nil
}

// finish gives the files of a volume that has been published to the pod's fsGroup, if owns is
// true, and records that the volume is done: kubelet changes the files of no volume that a pod
// already uses (SetUpAt of its CSI plugin). The volume is not locked: that may take long.
func (p *publication) finish(target string, owns bool) error {
	if owns {
		if err := p.Own(target); err != nil {
			return err
		}
	}
	p.record.Done = p.boot
	return p.record.write(p.dir)
}

// publishSecret returns the secret of the calls that publish the volume.
func (p *publication) publishSecret(ctx context.Context) (map[string]string, error) {
	if p.PV != nil {
		return p.secret(ctx, p.PV.Spec.CSI.NodePublishSecretRef)
	}
	if ref := p.Inline.NodePublishSecretRef; ref != nil {
		return p.secret(ctx, &corev1.SecretReference{Namespace: p.Pod.Namespace, Name: ref.Name})
	}
	return nil, nil
}

// tokensKey is the key of the tokens that a CSIDriver requests.
const tokensKey = "csi.storage.k8s.io/serviceAccount.tokens"

// addTokens adds the tokens that the CSIDriver requests to its request: to the volume's
// attributes or, by serviceAccountTokenInSecrets, to the secrets, which drivers do not log
// (KEP-5538).
func (p *publication) addTokens(ctx context.Context, request *spec.NodePublishVolumeRequest) error {
	if len(p.object.Spec.TokenRequests) == 0 {
		return nil
	}
	tokens := map[string]authenticationv1.TokenRequestStatus{}
	for _, wanted := range p.object.Spec.TokenRequests {
		token, err := p.token(ctx, wanted)
		if err != nil {
			return fmt.Errorf("token of service account %s for CSI driver %s: %w", objects.AccountOf(p.Pod), p.record.Driver, err)
		}
		tokens[wanted.Audience] = token
	}
	text, err := json.Marshal(tokens)
	if err != nil {
		return err
	}
	if !ptr.Deref(p.object.Spec.ServiceAccountTokenInSecrets, false) {
		request.VolumeContext[tokensKey] = string(text)
		return nil
	}
	if request.Secrets == nil {
		request.Secrets = map[string]string{}
	}
	request.Secrets[tokensKey] = string(text)
	return nil
}

// secret reads a secret of a driver's calls; nil for none.
func (m *Manager) secret(ctx context.Context, ref *corev1.SecretReference) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	found := &corev1.Secret{}
	if err := m.o.Client.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, found); err != nil {
		return nil, fmt.Errorf("reading the secret %s/%s of the volume: %w", ref.Namespace, ref.Name, err)
	}
	all := map[string]string{}
	for key, value := range found.Data {
		all[key] = string(value)
	}
	return all, nil
}
