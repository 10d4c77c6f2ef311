package volume

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	csitranslation "k8s.io/csi-translation-lib/plugins"
)

// plugin is what mounts a volume, as kubelet's metrics name it.
type plugin struct {
	// name has the driver of a CSI volume; it is empty for a type of volumes that svclet does
	// not mount.
	name string
	// migrated reports whether a CSI driver mounts a volume of another type.
	migrated bool
}

const csiPlugin = "kubernetes.io/csi:"

// pluginNames are the names by the fields of a volume's source, but for those that have the
// name of a driver.
var pluginNames = map[string]string{
	"configMap": "kubernetes.io/configmap", "downwardAPI": "kubernetes.io/downward-api", "emptyDir": "kubernetes.io/empty-dir",
	"hostPath": "kubernetes.io/host-path", "image": "kubernetes.io/image", "local": "kubernetes.io/local-volume", "nfs": "kubernetes.io/nfs",
	"projected": "kubernetes.io/projected", "secret": "kubernetes.io/secret",
}

// inlinePlugin returns the plugin of a volume that is in the pod's spec.
func (m *Manager) inlinePlugin(source *corev1.VolumeSource) plugin {
	switch {
	case source.CSI != nil:
		return plugin{name: csiPlugin + source.CSI.Driver}
	case source.PortworxVolume != nil:
		return m.portworxPlugin()
	case source.FlexVolume != nil:
		return plugin{name: source.FlexVolume.Driver}
	}
	return plugin{name: pluginNames[sourceName(source)]}
}

// persistentPlugin returns the plugin of a PersistentVolume.
func (m *Manager) persistentPlugin(source *corev1.PersistentVolumeSource) plugin {
	switch {
	case source.CSI != nil:
		return plugin{name: csiPlugin + source.CSI.Driver}
	case source.PortworxVolume != nil:
		return m.portworxPlugin()
	case source.FlexVolume != nil:
		return plugin{name: source.FlexVolume.Driver}
	}
	return plugin{name: pluginNames[sourceName(source)]}
}

// portworxPlugin returns the plugin of volumes of type portworxVolume: none if they are not
// migrated.
func (m *Manager) portworxPlugin() plugin {
	if !m.migratesPortworx() {
		return plugin{}
	}
	return plugin{name: csiPlugin + csitranslation.PortworxDriverName, migrated: true}
}

// operate mounts a volume of a pod, and measures that unless no plugin mounts it.
func (m *Manager) operate(s *state, volume string, p plugin, mount func() (mountedVolume, error)) (mountedVolume, error) {
	if p.name == "" {
		return mount()
	}
	m.mutex.Lock()
	if s.wanted == nil {
		s.wanted = map[string]plugin{}
	}
	s.wanted[volume] = p
	m.mutex.Unlock()
	began := m.Clock.Now()
	mounted, err := mount()
	m.Measured(p.name, "volume_mount", p.migrated, m.Clock.Since(began), err)
	mounted.plugin = p
	return mounted, err
}

// Count returns how many volumes the pods want, and how many are mounted, by the names of their
// plugins.
func (m *Manager) Count() (wanted, mounted map[string]int) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	wanted, mounted = map[string]int{}, map[string]int{}
	for _, s := range m.pods {
		for p := range maps.Values(s.wanted) {
			wanted[p.name]++
		}
		for _, p := range slices.Concat(plugins(s.volumes), s.leaving) {
			mounted[p.name]++
		}
	}
	return wanted, mounted
}

// plugins returns those of volumes.
func plugins(volumes []mountedVolume) []plugin {
	all := make([]plugin, len(volumes))
	for i, v := range volumes {
		all[i] = v.plugin
	}
	return all
}
