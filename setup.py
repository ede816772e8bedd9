"""Packaging: everything comes from settings.ini (pyproject.toml says which fields are taken from here)."""
import re
import sys
from configparser import ConfigParser
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / 'tools'))
import write_stubs  # noqa: E402

STATUS = {'1': 'Planning', '2': 'Pre-Alpha', '3': 'Alpha', '4': 'Beta', '5': 'Production/Stable'}
ini = ConfigParser(delimiters=['='])
ini.read(HERE / 'settings.ini', encoding='utf-8')
cfg = ini['DEFAULT']

first = int(cfg['min_python'].split('.')[1])
classifiers = [
    f"Development Status :: {cfg['status']} - {STATUS[cfg['status']]}",
    f"Intended Audience :: {cfg['audience']}",
    'Intended Audience :: Education',
    'Intended Audience :: Science/Research',
    f"Natural Language :: {cfg['language']}",
    'Operating System :: POSIX :: Linux',
    'Framework :: Jupyter',
    'Programming Language :: Python :: 3 :: Only',
    *[f'Programming Language :: Python :: 3.{n}' for n in range(first, 14)],
    'Topic :: Scientific/Engineering :: Artificial Intelligence',
    'Topic :: System :: Distributed Computing',
]
site = f"{cfg['git_url']}/%s/v{cfg['version']}/"  # on PyPI there are no files for relative links to lead to
readme = re.sub(r'(!?)(\[[^]]*\]\()(?!https?:|#|mailto:)',
                lambda m: m[0] + site % ('raw' if m[1] else 'blob'), (HERE / 'README.md').read_text(encoding='utf-8'))
extras = {k.removesuffix('_requirements'): v.split() for k, v in cfg.items() if k.endswith('_requirements')}


class WithStubs(build_py):
    "Type checkers see methods that `patch` adds, too."
    def run(self) -> None:
        super().run()
        if self.editable_mode: return
        Path(self.build_lib, cfg['lib_path'], '_modidx.py').unlink()  # for nbdev's tools alone
        write_stubs.write(Path(self.build_lib, cfg['lib_path']))


setup(
    cmdclass=dict(build_py=WithStubs),
    name=cfg['lib_name'],
    version=cfg['version'],
    description=cfg['description'],
    long_description=readme,
    long_description_content_type='text/markdown',
    author=cfg['author'],
    keywords=cfg['keywords'],
    classifiers=classifiers,
    python_requires=f">={cfg['min_python']}",
    packages=find_packages(include=[cfg['lib_path'], cfg['lib_path'] + '.*']),
    include_package_data=True,
    package_data={cfg['lib_path']: ['answers.yaml'],
                  cfg['lib_path'] + '.deploy': ['chart/*', 'chart/templates/*', 'image/*'],
                  cfg['lib_path'] + '.report': ['page/*']},
    install_requires=cfg['requirements'].split(),
    extras_require=extras,
    entry_points={
        'console_scripts': cfg['console_scripts'].split(),
        'torchrun.handlers': cfg['torchrun_handlers'].split(),
    },
)
