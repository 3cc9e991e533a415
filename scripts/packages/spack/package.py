# SPDX-License-Identifier: MIT
# SPDX-FileCopyrightText: 2026 The gpupool authors
"""Spack's recipe. It goes to packages/gpupool/package.py of a Spack repository.

It names no address of the sources: `spack dev-build gpupool@main` builds them in a clone.
"""

from spack.package import *  # pylint: disable=wildcard-import,unused-wildcard-import # Spack's recipes begin like this


class Gpupool(MesonPackage):
    """A caching pool for the GPU memory of unmodified CUDA programs. It is preloaded under a program, and needs no CUDA
    toolkit."""

    license("MIT")

    version("main")

    variant("symbols", default=True, description="Let gpupool-stat show functions and lines")
    variant("exporter", default=True, description="Build gpupool-stat export")
    variant("pprof", default=True, description="Let gpupool-stat write profiles for pprof")
    variant("top", default=True, description="Let gpupool-stat top use the whole terminal")

    depends_on("c", type="build")
    depends_on("meson@1.0.1:", type="build")
    depends_on("ninja", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("python@3.8:", type="build")
    depends_on("jansson")
    depends_on("zlib-api")
    depends_on("elfutils", when="+symbols")
    depends_on("binutils+headers+libiberty", when="+symbols")
    depends_on("libmicrohttpd@0.9.71:", when="+exporter")
    depends_on("protobuf-c", type=("build", "link"), when="+pprof")
    depends_on("ncurses", when="+top")

    conflicts("platform=darwin", msg="gpupool runs on Linux only")
    conflicts("platform=windows", msg="gpupool runs on Linux only")

    def meson_args(self):
        arguments = ["-Dtests=disabled", "-Dtools=enabled", "-Dpkgconfig.relocatable=true"]
        for name in ("symbols", "exporter", "pprof", "top"):
            arguments.append("-D%s=%s" % (name, "enabled" if "+" + name in self.spec else "disabled"))
        return arguments

    def setup_run_environment(self, env):
        # For `import gpupool`.
        env.prepend_path("PYTHONPATH", self.prefix.share.gpupool)
