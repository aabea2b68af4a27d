// Opens a report of the lab in a headless browser, and tells what a reader would see. Leaves
// pictures of the whole and of each figure.
//
//   node check.mjs REPORT.html SCREENSHOT.png      CHROMIUM=/usr/bin/chromium, where Debian has it
//
// Fails if the browser logs an error, if anything but the report itself is asked for, if a
// section or picture has no size, or a text of a picture lies outside of it.
import { pathToFileURL } from 'node:url'
import { chromium } from 'playwright-core'

const [report, screenshot] = process.argv.slice(2)
const url = pathToFileURL(report).href
const faults = []
const fault = (text) => faults.push(text)

const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    // As root there is no sandbox; the only page is our own, of a file.
    args: ['--no-sandbox', '--disable-gpu'],
})
try {
    const page = await browser.newPage({ viewport: { width: 1100, height: 900 } })
    page.on('console', (message) => {
        if (['error', 'warning'].includes(message.type())) fault(`the console says: ${message.text()}`)
    })
    page.on('pageerror', (error) => fault(`a script fails: ${error.message}`))
    page.on('request', (request) => {
        if (request.url() !== url) fault(`asks for ${request.url()}`)
    })
    await page.goto(url, { waitUntil: 'load' })
    const seen = await page.evaluate(() => {
        const size = (element) => {
            const { width, height } = element.getBoundingClientRect()
            return { width, height }
        }
        const outside = (svg) => {
            const frame = svg.getBoundingClientRect()
            const is_outside = (text) => {
                const at = text.getBoundingClientRect()
                return at.left < frame.left - 1 || at.right > frame.right + 1 || at.top < frame.top - 1 || at.bottom > frame.bottom + 1
            }
            return [...svg.querySelectorAll('text')].filter(is_outside).map((text) => text.textContent.trim())
        }
        const sections = [...document.querySelectorAll('h2')].map((heading) => {
            const pictures = []
            const verdicts = []
            for (let next = heading.nextElementSibling; next && next.tagName !== 'H2'; next = next.nextElementSibling) {
                if (next.classList.contains('verdict')) verdicts.push({ text: next.textContent, ...size(next) })
                for (const svg of next.querySelectorAll('svg')) pictures.push({ ...size(svg), outside: outside(svg) })
            }
            return { name: heading.id, pictures, verdicts, ...size(heading) }
        })
        return { title: document.title, sections, wide: document.documentElement.scrollWidth }
    })
    if (seen.title !== 'Aerostat lab') fault(`the title is ${seen.title}`)
    if (seen.sections.length === 0) fault('there is no section')
    for (const { name, pictures, verdicts, height } of seen.sections) {
        if (height === 0) fault(`${name}: the heading has no size`)
        if (verdicts.length !== 1 || verdicts[0].height === 0) fault(`${name}: there is no verdict to see`)
        const was_skipped = verdicts[0]?.text.startsWith('SKIPPED')
        if (pictures.length === 0 && !was_skipped) fault(`${name}: there is no picture`)
        for (const { width, height, outside } of pictures) {
            if (width < 300 || height < 150) fault(`${name}: a picture is ${width} by ${height}`)
            if (outside.length > 0) fault(`${name}: outside of its picture: ${outside.join(', ')}`)
        }
        console.log(`${name}: ${pictures.length} pictures`)
    }
    await page.screenshot({ path: screenshot, fullPage: true })
    for (const [nth, figure] of (await page.locator('figure').all()).entries()) {
        await figure.screenshot({ path: screenshot.replace(/\.png$/, `-${nth + 1}.png`) })
    }
    console.log(`${seen.sections.length} sections, ${seen.wide} pixels wide, ${faults.length} faults`)
} finally {
    await browser.close()
}
for (const text of faults) console.error(`FAULT: ${text}`)
process.exitCode = faults.length > 0 ? 1 : 0
