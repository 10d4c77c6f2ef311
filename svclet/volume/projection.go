package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"svc.dev/svc/svclet/container/downward"
)

// showsObjects reports whether a volume's content comes from API objects and has
// to be refreshed.
func showsObjects(v *corev1.Volume) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
}

// projectedPlugin is the directory of projected volumes among those of a pod.
const projectedPlugin = "kubernetes.io~projected"

// mountObjects sets up a volume with content from API objects, or refreshes it.
// Secret content is kept in memory.
func (m *Manager) mountObjects(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) (mountedVolume, error) {
	plugin, medium := "kubernetes.io~configmap", corev1.StorageMediumDefault
	switch {
	case volume.Secret != nil:
		plugin, medium = "kubernetes.io~secret", corev1.StorageMediumMemory
	case volume.Projected != nil:
		plugin, medium = projectedPlugin, corev1.StorageMediumMemory
	case volume.DownwardAPI != nil:
		plugin = "kubernetes.io~downward-api"
	}
	dir := m.layout.volume(pod.UID, plugin, volume.Name)
	mounted := mountedVolume{
		name: volume.Name, Mounted: Mounted{HostPath: dir, ReadOnly: true, Relabel: true}, measure: measureWalk,
	}
	files, err := m.content(ctx, pod, volume)
	if err != nil {
		return mounted, err
	}
	ready := m.layout.ready(pod.UID, "wrapped_"+volume.Name)
	if err := m.setUpDir(pod, &corev1.EmptyDirVolumeSource{Medium: medium}, dir, ready, true); err != nil {
		return mounted, err
	}
	if err := makeNested(pod, volume.Name, dir); err != nil {
		return mounted, err
	}
	w := writer{dir: dir, now: m.Clock.Now()}
	if group := fsGroup(pod); group != nil {
		w.own = func() error { return own(dir, *group, true) }
	}
	return mounted, w.write(files)
}

// content returns the volume's current content.
func (m *Manager) content(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) (map[string]file, error) {
	switch {
	case volume.ConfigMap != nil:
		s := volume.ConfigMap
		return m.configMap(ctx, pod.Namespace, s.Name, keys{s.Items, modeOf(s.DefaultMode), isTrue(s.Optional)})
	case volume.Secret != nil:
		s := volume.Secret
		return m.secret(ctx, pod.Namespace, s.SecretName, keys{s.Items, modeOf(s.DefaultMode), isTrue(s.Optional)})
	case volume.DownwardAPI != nil:
		return m.downward(pod, volume.DownwardAPI.Items, modeOf(volume.DownwardAPI.DefaultMode))
	default:
		return m.projected(ctx, pod, volume)
	}
}

// projected returns the content of all sources of a projected volume. The error
// joins the errors of all sources.
func (m *Manager) projected(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume) (map[string]file, error) {
	all := map[string]file{}
	var failed []error
	for i := range volume.Projected.Sources {
		files, err := m.source(ctx, pod, volume, i)
		if err != nil {
			failed = append(failed, err)
		}
		maps.Copy(all, files)
	}
	return all, utilerrors.NewAggregate(failed)
}

// source returns the content of the source of an index.
func (m *Manager) source(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume, index int) (map[string]file, error) {
	source, mode := &volume.Projected.Sources[index], modeOf(volume.Projected.DefaultMode)
	switch {
	case source.Secret != nil:
		s := source.Secret
		return m.secret(ctx, pod.Namespace, s.Name, keys{s.Items, mode, isTrue(s.Optional)})
	case source.ConfigMap != nil:
		s := source.ConfigMap
		return m.configMap(ctx, pod.Namespace, s.Name, keys{s.Items, mode, isTrue(s.Optional)})
	case source.DownwardAPI != nil:
		return m.downward(pod, source.DownwardAPI.Items, mode)
	case source.ServiceAccountToken != nil:
		token, err := m.Objects.Token(ctx, pod, source.ServiceAccountToken)
		if err != nil {
			return nil, err
		}
		return map[string]file{source.ServiceAccountToken.Path: credential(pod, []byte(token), mode)}, nil
	case source.ClusterTrustBundle != nil:
		s := source.ClusterTrustBundle
		bundles, err := m.Objects.TrustBundles(ctx, s)
		if err != nil {
			return nil, fmt.Errorf("while getting ClusterTrustBundle: %w", err)
		}
		anchors, err := trustAnchors(s, bundles, string(pod.UID))
		if err != nil {
			return nil, err
		}
		return map[string]file{s.Path: credential(pod, anchors, mode)}, nil
	case source.PodCertificate != nil:
		return m.certificate(ctx, pod, volume, index, mode)
	default:
		return nil, errors.New("a source of the projected volume is of a type that svclet does not know")
	}
}

// credential returns a file that only the user of the pod's containers may read, if they
// all have the same one or the pod has an fsGroup.
func credential(pod *corev1.Pod, data []byte, mode fs.FileMode) file {
	user := onlyUser(pod)
	if user != nil || fsGroup(pod) != nil {
		mode = 0o600
	}
	return file{data: data, mode: mode, user: user}
}

// keys select the keys of an object and their paths: all keys if there are no
// items.
type keys struct {
	items    []corev1.KeyToPath
	mode     fs.FileMode
	optional bool
}

// defaultMode is the mode of files for which the pod has none: the API server sets
// the default, manifests on disk may lack it.
const defaultMode fs.FileMode = 0o644

func modeOf(mode *int32) fs.FileMode {
	if mode == nil {
		return defaultMode
	}
	return fs.FileMode(*mode) & fs.ModePerm
}

func isTrue(b *bool) bool { return b != nil && *b }

func (m *Manager) configMap(ctx context.Context, namespace, name string, k keys) (map[string]file, error) {
	object, err := m.Objects.ConfigMap(ctx, namespace, name)
	if k.optional && apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data := make(map[string][]byte, len(object.Data)+len(object.BinaryData))
	maps.Copy(data, object.BinaryData)
	for key, value := range object.Data {
		data[key] = []byte(value)
	}
	return k.pick(data, "configmap references non-existent config key: %s")
}

func (m *Manager) secret(ctx context.Context, namespace, name string, k keys) (map[string]file, error) {
	object, err := m.Objects.Secret(ctx, namespace, name)
	if k.optional && apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return k.pick(object.Data, "references non-existent secret key: %s")
}

// pick returns files of an object's data; missing is the error format for a key
// that does not exist.
func (k keys) pick(data map[string][]byte, missing string) (map[string]file, error) {
	files := make(map[string]file, len(data))
	if len(k.items) == 0 {
		for key, value := range data {
			files[key] = file{data: value, mode: k.mode}
		}
		return files, nil
	}
	for _, item := range k.items {
		value, ok := data[item.Key]
		if !ok && k.optional {
			continue
		}
		if !ok {
			return nil, fmt.Errorf(missing, item.Key)
		}
		f := file{data: value, mode: k.mode}
		if item.Mode != nil {
			f.mode = modeOf(item.Mode)
		}
		files[item.Path] = f
	}
	return files, nil
}

// downward returns the content of a downward API volume.
func (m *Manager) downward(pod *corev1.Pod, items []corev1.DownwardAPIVolumeFile, mode fs.FileMode) (map[string]file, error) {
	files := make(map[string]file, len(items))
	var failed []error
	for _, item := range items {
		f := file{mode: mode}
		if item.Mode != nil {
			f.mode = modeOf(item.Mode)
		}
		var text string
		var err error
		switch {
		case item.FieldRef != nil:
			text, err = downward.Field(pod, item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			text, err = downward.Resource(pod, nil, item.ResourceFieldRef, m.allocatable())
		}
		if err != nil {
			failed = append(failed, err)
			continue
		}
		f.data = []byte(text)
		files[filepath.Clean(item.Path)] = f
	}
	return files, utilerrors.NewAggregate(failed)
}
