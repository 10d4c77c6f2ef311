package volume

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// certificate returns the files of a source with a certificate. While there is none, because
// the agent has been restarted or the renewal was refused, they stay as they are in a volume
// that has them: the other sources of the volume are refreshed nonetheless.
func (m *Manager) certificate(ctx context.Context, pod *corev1.Pod, volume *corev1.Volume, index int, mode fs.FileMode) (map[string]file, error) {
	source := volume.Projected.Sources[index].PodCertificate
	key, chain, err := m.Objects.PodCertificate(ctx, pod, volume.Name, index, source)
	if err == nil {
		return certificateFiles(pod, source, key, chain, mode), nil
	}
	files := certificateFiles(pod, source, nil, nil, mode)
	for name, f := range files {
		var readErr error
		if f.data, readErr = os.ReadFile(filepath.Join(m.layout.volume(pod.UID, projectedPlugin, volume.Name), name)); readErr != nil {
			return nil, err // that there is no certificate is the cause
		}
		files[name] = f
	}
	return files, nil
}

// certificateFiles returns the files with a private key and its certificates, the key first
// in the one with both.
func certificateFiles(pod *corev1.Pod, source *corev1.PodCertificateProjection, key, chain []byte, mode fs.FileMode) map[string]file {
	files := map[string]file{}
	for path, data := range map[string][]byte{
		source.CredentialBundlePath: slices.Concat(key, chain), source.KeyPath: key, source.CertificateChainPath: chain,
	} {
		if path != "" {
			files[path] = credential(pod, data, mode)
		}
	}
	return files
}
